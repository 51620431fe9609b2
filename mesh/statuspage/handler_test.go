package statuspage

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func request(h http.Handler, method, target string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.Host = "127.0.0.1:8080"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestOnlyGETAndHEAD(t *testing.T) {
	h := Handler()
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "EXPLAIN"} {
		for _, path := range []string{"/", "/page.js", "/data", "/events", "/explain"} {
			w := request(h, method, path, nil)
			if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d, Allow %q", method, path, w.Code, w.Header().Get("Allow"))
			}
		}
	}
	for _, path := range []string{"/", "/page.js", "/elements.js", "/page.css", "/data?show=overview", "/events?show=overview"} {
		if w := request(h, "HEAD", path, nil); w.Code != http.StatusOK || w.Header().Get("Content-Type") == "" {
			t.Errorf("HEAD %s: %d, Content-Type %q", path, w.Code, w.Header().Get("Content-Type"))
		}
	}
}

func TestHeadersOfEveryAnswer(t *testing.T) {
	h := Handler()
	for _, target := range []string{"/", "/page.js", "/page.css", "/favicon.ico", "/data?show=overview", "/data?show=nonsense", "/explain", "/nothing"} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			header := request(h, method, target, nil).Header()
			for name, want := range map[string]string{
				"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
					"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
				"X-Content-Type-Options":       "nosniff",
				"Referrer-Policy":              "no-referrer",
				"Cache-Control":                "no-store",
				"Cross-Origin-Resource-Policy": "same-origin",
			} {
				if got := header.Get(name); got != want {
					t.Errorf("%s %s: %s is %q, want %q", method, target, name, got, want)
				}
			}
		}
	}
}

func TestHosts(t *testing.T) {
	for _, tc := range []struct {
		host    string
		opts    []Option
		allowed bool
	}{
		{"localhost", nil, true},
		{"LocalHost:8080", nil, true},
		{"page.localhost:8080", nil, true},
		{"127.0.0.1:8080", nil, true},
		{"[::1]:8080", nil, true},
		{"[::1]", nil, true},
		{"10.1.2.3", nil, true},
		{"", nil, false},
		{"evil.example:8080", nil, false},
		{"localhost.evil.example", nil, false},
		{"127.0.0.1.evil.example", nil, false},
		{"status.internal:8080", []Option{AllowHosts("other", "Status.Internal")}, true},
		{"evil.example", []Option{AllowHosts("status.internal")}, false},
		{"evil.example", []Option{AllowHosts("*")}, true},
	} {
		for _, path := range []string{"/", "/data?show=overview"} {
			w := request(Handler(tc.opts...), "GET", path, func(r *http.Request) { r.Host = tc.host })
			if allowed := w.Code == http.StatusOK; allowed != tc.allowed {
				t.Errorf("Host %q, %s: status %d, want allowed: %v", tc.host, path, w.Code, tc.allowed)
			}
			if !tc.allowed && (w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "AllowHosts")) {
				t.Errorf("Host %q: %d %s, want 403 and the way out", tc.host, w.Code, w.Body)
			}
		}
	}
}

// The headers of a request from another site's page identify it.
func TestOtherSites(t *testing.T) {
	for _, tc := range []struct {
		site, mode string
		want       int
	}{
		{"same-origin", "cors", 200}, {"none", "navigate", 200}, {"", "", 200}, {"cross-site", "navigate", 200},
		{"cross-site", "no-cors", 403}, {"cross-site", "cors", 403}, {"same-site", "no-cors", 403},
	} {
		w := request(Handler(), "GET", "/data?show=overview", func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", tc.site)
			r.Header.Set("Sec-Fetch-Mode", tc.mode)
		})
		if w.Code != tc.want {
			t.Errorf("%s, %s: %d, want %d", tc.site, tc.mode, w.Code, tc.want)
		}
	}
}

func TestPrefixes(t *testing.T) {
	h := Handler()
	mounts := map[string]http.Handler{
		"at the top":             h,
		"below a prefix":         mux("/a/b/", h),
		"with StripPrefix":       mux("/a/b/", http.StripPrefix("/a/b", h)),
		"with StripPrefix and /": mux("/a/b/", http.StripPrefix("/a/b/", h)),
	}
	for name, mounted := range mounts {
		prefix := "/a/b/"
		if name == "at the top" {
			prefix = "/"
		}
		for path, want := range map[string]string{"": "<!doctype html>", "page.js": `from "./elements.js"`, "elements.js": "export function h(", "page.css": ":root", "data?show=overview": `"overview"`} {
			w := request(mounted, "GET", prefix+path, nil)
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: GET %s%s: %d, want a body with %s", name, prefix, path, w.Code, want)
			}
		}
	}
}

func mux(pattern string, h http.Handler) http.Handler {
	m := http.NewServeMux()
	m.Handle(pattern, h)
	return m
}

// Relative links need the slash at the end. The redirect cannot be made to lead to another host.
func TestRedirectToTheSlash(t *testing.T) {
	for asked, want := range map[string]string{"/status": "./status/", "/a/status?x=1": "./status/", "//evil.example": "./evil.example/"} {
		path, _, _ := strings.Cut(asked, "?")
		w := request(http.StripPrefix(path, Handler()), "GET", "http://127.0.0.1"+asked, func(r *http.Request) { r.RequestURI = asked })
		if w.Code != http.StatusTemporaryRedirect || w.Header().Get("Location") != want {
			t.Errorf("GET %s: %d to %q, want 307 to %q", asked, w.Code, w.Header().Get("Location"), want)
		}
	}
}

func TestNothingElse(t *testing.T) {
	for _, path := range []string{"/x", "/page/index.html", "/index.html", "/..", "/data.json"} {
		if w := request(Handler(), "GET", path, nil); w.Code != http.StatusNotFound {
			t.Errorf("GET %s: %d, want 404", path, w.Code)
		}
	}
}

func TestQueriesAreBounded(t *testing.T) {
	for query, want := range map[string]string{
		"show=nonsense":                              "no section",
		"show=resources&resources.from=-1":           "resources.from",
		"show=resources&resources.from=x":            "resources.from",
		"show=resources&resources.from=999999999999": "resources.from",
		"resources.q=" + strings.Repeat("x", 201):    "more than 200",
		"resources.q=%ff":                            "not UTF-8",
		"open=1" + strings.Repeat("&open=1", 20):     "more than 20",
	} {
		for _, path := range []string{"/data?", "/events?"} {
			w := request(Handler(), "GET", path+query, nil)
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s%.40s: %d %s, want 400 with %q", path, query, w.Code, w.Body, want)
			}
		}
	}
	if w := request(Handler(), "GET", "/data?"+strings.Repeat("x", 17<<10), nil); w.Code != http.StatusRequestURITooLong {
		t.Errorf("long query: %d, want 414", w.Code)
	}
	// A section that is requested twice is sent once.
	q, err := parseQuery(map[string][]string{"show": {"overview", "overview"}})
	if err != nil || len(q.sections) != 1 {
		t.Errorf("%v, %v, want one section", q, err)
	}
}
