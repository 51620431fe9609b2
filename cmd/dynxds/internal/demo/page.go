package demo

import (
	"fmt"
	"html"
	"net/http"
	"strings"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/webpage"
	"github.com/dynxds/dynxds/internal/webguard"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/statuspage"
)

// chartPath is where the chart is, beside the status page.
const chartPath = "/chart"

// servePage serves the status page, and the chart, at the address of the flag --page.
func servePage(address string, control *controlplane.Server, store *controlplane.Store, c *chart) (*webpage.Page, error) {
	return webpage.Open("--page", address, func(hosts []string, _ bool) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/", statuspage.Handler(statuspage.WithControlPlane(control, store), statuspage.AllowHosts(hosts...)))
		mux.HandleFunc("GET "+chartPath, func(w http.ResponseWriter, r *http.Request) {
			if fault := webguard.Fault(r, hosts, "name the host in --page"); fault != "" {
				http.Error(w, fault, http.StatusForbidden)
				return
			}
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
			w.Header().Set("Cache-Control", "no-store")
			_, _ = fmt.Fprint(w, c.page()) // an error is that of the connection
		})
		return mux
	})
}

// inks are the colours of the backends, told apart also by people who see few colours.
var inks = []string{"#0072b2", "#56b4e9", "#e69f00", "#009e73"}

const pageStyle = `body{font:16px sans-serif;margin:1em auto;max-width:60em;padding:0 1em;color:#222;background:#fff}
svg{width:100%;height:auto}text{font:12px sans-serif;fill:currentColor}p{margin:.3em 0}b{font-size:1.2em}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}}`

// page draws the chart as a page that loads itself again every second. There is no script.
func (c *chart) page() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	const width, height, top = 800.0, 200.0, 20.0
	var b strings.Builder
	fmt.Fprintf(&b, `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">`+
		`<meta http-equiv="refresh" content="1"><title>dynxds demo</title><style>%s</style><body><p><b>%s</b></p>`, pageStyle, html.EscapeString(c.title))
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="shares of the backends over time">`, width, top+height)
	step := width / chartWidth
	for i := range c.columns {
		y := top + height
		for j, backend := range c.backends {
			h := height * c.share(i, backend[0])
			y -= h
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, float64(i)*step, y, step-1, h, inks[j%len(inks)])
		}
	}
	for i, at := range c.marks {
		x := float64(at) * step
		fmt.Fprintf(&b, `<path d="M%.1f 0V%g" stroke="currentColor" stroke-dasharray="4"/><text x="%.1f" y="12">step %d</text>`, x, top+height, x+4, i+1)
	}
	b.WriteString(`</svg>`)
	for j, backend := range c.backends {
		last := 0.0
		if n := len(c.columns); n > 0 {
			last = c.share(n-1, backend[0])
		}
		fmt.Fprintf(&b, `<p><svg viewBox="0 0 10 10" style="width:.8em"><rect width="10" height="10" fill="%s"/></svg> %s, cluster %s: %.1f %%</p>`,
			inks[j%len(inks)], html.EscapeString(backend[0]), html.EscapeString(backend[1]), 100*last)
	}
	b.WriteString(`<p><a href="/">status page</a></p>`)
	return b.String()
}
