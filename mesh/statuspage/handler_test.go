package statuspage

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/testutils"
)

// headers are those of every answer.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
		"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
	"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin",
}

// repeated is a text and how often it is there.
var repeated = regexp.MustCompile(`\{(\S+)\*(\d+)\}`)

// Requests and the answers to them. A section is a way to mount the page; a case is a request as HTTP has it.
func TestRequests(t *testing.T) {
	golden.Cases(t, "testdata/requests.txt", func(mount, request string) string {
		request = repeated.ReplaceAllStringFunc(request, func(text string) string {
			parts := repeated.FindStringSubmatch(text)
			n, err := strconv.Atoi(parts[2])
			xdstest.NoError(t, err)
			return strings.Repeat(parts[1], n)
		})
		lines := strings.Split(request, "\n")
		method, target, _ := strings.Cut(lines[0], " ")
		r := httptest.NewRequest(method, "http://127.0.0.1:8080"+target, nil)
		r.RequestURI = target
		for _, line := range lines[1:] {
			name, value, _ := strings.Cut(line, ": ")
			r.Header.Set(name, value)
			if name == "Host" {
				r.Host = strings.TrimSpace(value)
			}
		}
		w := httptest.NewRecorder()
		mounted(mount).ServeHTTP(w, r)
		for name, want := range headers {
			xdstest.Equal(t, request+": "+name, want, w.Header().Get(name))
		}
		answer := fmt.Sprintln(strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Header().Get("Content-Type"), " ", w.Header().Get("Allow")+w.Header().Get("Location"))))
		if first, _, _ := strings.Cut(w.Body.String(), "\n"); !strings.HasPrefix(first, "{") {
			answer += first
		}
		return answer
	})
}

// mounted returns the page as a section says.
func mounted(section string) http.Handler {
	words := strings.Fields(section)
	switch words[0] {
	case "allow":
		return Handler(AllowHosts(words[1:]...))
	case "strip":
		return http.StripPrefix(words[1], Handler())
	case "below":
		return mux(words[1], Handler())
	default:
		return Handler()
	}
}

func mux(pattern string, h http.Handler) http.Handler {
	m := http.NewServeMux()
	m.Handle(pattern, h)
	return m
}

// A browser that has a version of a section is sent the section again only when it has changed.
func TestOnlyWhatHasChangedIsSent(t *testing.T) {
	plane := meshtest.StartServer(t)
	h := quick(WithControlPlane(plane.Control(), plane.Store()))
	ask := func(query string) (answer struct {
		Versions map[string]string
		Served   *servedView
	}) {
		xdstest.NoError(t, json.Unmarshal(get(t, h, "/data?show=served"+query).Body.Bytes(), &answer))
		return answer
	}
	first := ask("")
	seen := "&served.version=" + first.Versions["served"]
	if again := ask(seen); first.Served == nil || again.Served != nil || again.Versions["served"] != first.Versions["served"] {
		t.Errorf("first %+v, then %+v", first, again)
	}
	plane.Set(t, xdsmsg.EDSCluster("c", ""))
	for ctx := testutils.Context(t); ask(seen).Served == nil; {
		xdstest.NoError(t, ctx.Err())
	}
}
