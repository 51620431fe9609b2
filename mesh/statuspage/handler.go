package statuspage

import (
	"embed"
	"fmt"
	"hash/maphash"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
	"github.com/dynxds/dynxds/mesh/internal/webguard"
)

// An Option changes what Handler returns.
type Option func(*handler)

// AllowHosts allows requests whose Host is one of the given DNS names, without port, beside IP
// addresses and "localhost". It is for pages that have a name, such as one behind a proxy.
// Names are compared without regard to case; "*" allows every Host, for a server that
// authenticates all requests.
func AllowHosts(names ...string) Option {
	return func(h *handler) {
		for _, name := range names {
			h.hosts = append(h.hosts, strings.ToLower(name))
		}
	}
}

// WithControlPlane adds a control plane that runs in the process: its clients, with what each
// of them has ACKed and NACKed, and the resources it serves. Either may be nil.
func WithControlPlane(server *controlplane.Server, store *controlplane.Store) Option {
	return func(h *handler) { h.plane, h.server, h.store = true, server, store }
}

// Configuration is what a control plane says about its own configuration: whether its documents are valid, since when
// they are not and why, and what was published last.
type Configuration = planestate.State

// WithConfiguration adds the configuration of the control plane of [WithControlPlane]. The function is called for each
// snapshot.
func WithConfiguration(state func() Configuration) Option {
	return func(h *handler) { h.configuration = state }
}

// WithLoads adds what clients of the control plane of [WithControlPlane] have reported lately, as controlplane.LoadReports.Recent returns it. The
// function is called for each snapshot.
func WithLoads(recent func() []controlplane.RecentLoad) Option {
	return func(h *handler) { h.loads = recent }
}

// Handler returns the status page of the process. It is safe for concurrent use.
//
// Two answers are made at a time; others wait for up to 10 seconds, and get the status 503 then: their browsers try again.
func Handler(opts ...Option) http.Handler {
	h := &handler{refresh: time.Second, patience: 30 * time.Second, turns: make(chan struct{}, 2), seed: maphash.MakeSeed()}
	for _, opt := range opts {
		opt(h)
	}
	return h
}

// handler is the page. It keeps nothing but the last snapshot and what is known of its resources.
type handler struct {
	hosts []string
	// plane says that a control plane runs in the process: server and store, of which either may be nil.
	plane  bool
	server *controlplane.Server
	store  *controlplane.Store
	// configuration is what the control plane says about its configuration; nil: nothing.
	configuration func() Configuration
	// loads is what clients have reported to the control plane lately; nil: nothing.
	loads func() []controlplane.RecentLoad

	refresh  time.Duration // the least time between two snapshots
	patience time.Duration // the longest time that a browser takes to read
	// turns has an element for each answer that is made.
	turns chan struct{}
	seed  maphash.Seed

	snapshots snapshots
}

// contentTypes are those of the files, by extension.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
}

//go:embed page
var files embed.FS

// maxQuery bounds what a browser may ask for, in bytes.
const maxQuery = 16 << 10

// policy is the content security policy.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// ServeHTTP implements http.Handler. Only the last part of the path counts, so that
// the prefix that the handler is mounted under does not matter.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "only GET and HEAD: the page changes nothing")
		return
	}
	if len(r.URL.RawQuery) > maxQuery {
		refuse(w, http.StatusRequestURITooLong, fmt.Sprintf("the query has more than %d bytes", maxQuery))
		return
	}
	if fault := webguard.Fault(r, h.hosts, "allow the name (statuspage.AllowHosts)"); fault != "" {
		refuse(w, http.StatusForbidden, fault)
		return
	}
	switch name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]; name {
	case "":
		index(w, r)
	case "favicon.ico":
		w.WriteHeader(http.StatusNoContent)
	case "data":
		h.answer(w, r, h.data)
	case "explain":
		h.answer(w, r, explainRPC)
	case "index.html":
		notFound(w)
	default:
		file(w, name)
	}
}

func refuse(w http.ResponseWriter, status int, text string) {
	http.Error(w, "statuspage: "+text, status)
}

func notFound(w http.ResponseWriter) {
	refuse(w, http.StatusNotFound, "no such part of the page; its address ends in /")
}

// index serves the page. Its relative links need an address that ends in "/", which
// http.StripPrefix may have removed.
func index(w http.ResponseWriter, r *http.Request) {
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	if last := path.Base(asked); r.URL.Path == "" && !strings.HasSuffix(asked, "/") && last != "." {
		w.Header().Set("Location", "./"+last+"/")
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	}
	file(w, "index.html")
}

// file serves an embedded file.
func file(w http.ResponseWriter, name string) {
	content, err := files.ReadFile("page/" + name)
	if err != nil {
		notFound(w)
		return
	}
	w.Header().Set("Content-Type", contentTypes[path.Ext(name)])
	_, _ = w.Write(content)
}
