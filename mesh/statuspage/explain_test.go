package statuspage

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/testutils"
)

func TestExplain(t *testing.T) {
	backend := testutils.StartBackend(t, "b")
	_, conn := startChannel(t, "explain",
		xdsmsg.DefaultListener("service", "routes"),
		xdsmsg.RouteConfig("routes", "service", xdsmsg.PathRoute("/a.B/C", "other"), xdsmsg.PrefixRoute("", "c")),
		xdsmsg.EDSCluster("c", ""), xdsmsg.EDSCluster("other", ""), xdsmsg.SimpleEndpoints("c", backend.Addr()))
	xdstest.NoError(t, call(t, conn))
	h := Handler()
	query := url.Values{"target": {"xds:///service"}, "method": {"/grpc.testing.TestService/EmptyCall"}, "header": {"X-User: 7", "x-user:8"}}
	w := get(t, h, "/explain?"+query.Encode())
	var got struct{ Explanation explain.Explanation }
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	xdstest.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
	e := got.Explanation
	if len(e.Routes) != 2 || e.Routes[0].Failed == nil || e.Routes[1].Share != 100 || len(e.Clusters) != 1 || e.Clusters[0].Name != "c" {
		t.Errorf("explanation %s", w.Body)
	}
	xdstest.Equal(t, "headers", []string{"7", "8"}, e.Request.Headers["x-user"])

	for query, want := range map[string]string{
		"":                                      "",
		"target=xds:///nobody&method=/a.B/C":    "nobody",
		"target=xds:///service&method=nonsense": "nonsense",
		"target=xds:///service&method=/a.B/C&header=x":                                    "NAME: VALUE",
		"target=xds:///service&method=/a.B/C" + strings.Repeat("&header=x:1", 101):        "more than 100",
		"target=xds:///service&method=/a.B/C&header=%3Cscript%3E%3A1":                     "script",
		"target=xds:///service&method=" + url.QueryEscape("/a.B/<img src=x onerror=1>\n"): "",
	} {
		w := get(t, h, "/explain?"+query)
		if w.Code != http.StatusBadRequest && w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%q: %d %s, want %q", query, w.Code, w.Body, want)
		}
		if kind := w.Header().Get("Content-Type"); kind != "application/json" && kind != "text/plain; charset=utf-8" {
			t.Errorf("%q: Content-Type %q", query, kind)
		}
	}
}

// Of channels with one target, the number chooses.
func TestExplainOneOfSeveralChannels(t *testing.T) {
	h, backend := Handler(), testutils.StartBackend(t, "b")
	for _, cluster := range []string{"first", "second"} {
		_, conn := startChannel(t, cluster, oneCluster(cluster, backend)...)
		xdstest.NoError(t, call(t, conn))
	}
	var outcomes []string
	for _, c := range section[list[inspect.Channel]](t, h, "channels").Items {
		w := get(t, h, fmt.Sprintf("/explain?target=xds:///service&method=/a.B/C&channel=%d", c.Number))
		var got struct{ Explanation explain.Explanation }
		xdstest.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		if outcomes = append(outcomes, got.Explanation.Outcome); len(got.Explanation.Notes) > 0 {
			t.Errorf("channel %d has the notes %q", c.Number, got.Explanation.Notes)
		}
	}
	xdstest.Equal(t, "outcomes", []string{`route 0 → cluster "first", priority 0, 1 endpoint`, `route 0 → cluster "second", priority 0, 1 endpoint`}, outcomes)
	for channel, want := range map[string]string{"999999": `the target "xds:///service" and the number 999999`, "x": `channel: "x" is not a number`} {
		if w := get(t, h, "/explain?target=xds:///service&method=/a.B/C&channel="+channel); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("channel %s: %d %s, want %q", channel, w.Code, w.Body, want)
		}
	}
}

// Of a long explanation the page gets what was chosen, and how much is left out.
func TestLongExplanationsAreShortened(t *testing.T) {
	e := &explain.Explanation{Clusters: []explain.Cluster{{Name: "c", Assignment: &explain.ClusterAssignment{Priorities: []explain.Priority{
		{Localities: []explain.Locality{{Endpoints: make([]explain.Endpoint, 40)}, {Endpoints: make([]explain.Endpoint, 40)}}},
		{Localities: []explain.Locality{{Endpoints: make([]explain.Endpoint, 5)}}},
	}}}}}
	for i := range 10_000 {
		e.Routes = append(e.Routes, explain.Route{Index: i})
		e.VirtualHosts = append(e.VirtualHosts, explain.VirtualHost{Name: fmt.Sprint(i)})
	}
	e.Routes[9_999].Share, e.VirtualHosts[5_000].Chosen = 100, true
	s := shorten(e)
	if n := len(s.Routes); n > routesExplained || n+s.RoutesLeft != 10_000 || s.Routes[n-1].Index != 9_999 || s.Routes[0].Index != 0 {
		t.Errorf("%d routes and %d left, the last is %d", n, s.RoutesLeft, s.Routes[n-1].Index)
	}
	if n := len(s.VirtualHosts); n > hostsExplained || n+s.HostsLeft != 10_000 || s.VirtualHosts[n-1].Name != "5000" {
		t.Errorf("%d virtual hosts and %d left, the last is %s", n, s.HostsLeft, s.VirtualHosts[n-1].Name)
	}
	p := s.Clusters[0].Assignment.Priorities
	if len(p[0].Localities[0].Endpoints) != 40 || len(p[0].Localities[1].Endpoints) != 10 || len(p[1].Localities[0].Endpoints) != 0 || s.EndpointsLeft["c"] != 35 {
		t.Errorf("endpoints left %v", s.EndpointsLeft)
	}
}

// Browsers that read nothing keep nobody else from an answer, and are given up after a while.
func TestBrowsersThatReadNothing(t *testing.T) {
	_, conn := startChannel(t, "deaf", oneCluster("c", testutils.StartBackend(t, "b"))...)
	xdstest.NoError(t, call(t, conn))
	h := Handler()
	for _, target := range []string{"/explain?target=xds:///service&method=/a.B/C", "/data?show=overview"} {
		blocked := make(chan struct{})
		var writing sync.WaitGroup
		for range 2 * cap(h.(*handler).asking) {
			w := &deafWriter{ResponseRecorder: httptest.NewRecorder(), writes: make(chan time.Time, 1), blocked: blocked}
			writing.Go(func() {
				r := httptest.NewRequest(http.MethodGet, target, nil)
				r.Host = "127.0.0.1"
				h.ServeHTTP(w, r)
			})
			if deadline := <-w.writes; deadline.IsZero() || time.Until(deadline) > h.(*handler).patience {
				t.Errorf("%s: a browser has until %v to read", target, deadline)
			}
		}
		if w := get(t, h, target); w.Code != http.StatusOK {
			t.Errorf("%s: another browser got %d: %s", target, w.Code, w.Body)
		}
		close(blocked)
		writing.Wait()
	}
}

// deafWriter is the connection of a browser that does not read.
type deafWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
	writes   chan time.Time
	blocked  chan struct{}
}

// SetWriteDeadline is for http.ResponseController.
func (w *deafWriter) SetWriteDeadline(at time.Time) error {
	w.deadline = at
	return nil
}

func (w *deafWriter) Write(p []byte) (int, error) {
	w.writes <- w.deadline
	<-w.blocked
	return len(p), nil
}

// What a control plane says of its clients is asked for once for all viewers.
func TestViewersShareAnOverview(t *testing.T) {
	server, conn := startChannel(t, "shared", oneCluster("c", testutils.StartBackend(t, "b"))...)
	xdstest.NoError(t, call(t, conn))
	p := &plane{server: server.Control(), store: server.Store()}
	shown := func(refresh time.Duration) []controlplane.ClientStatus {
		streams, _ := p.count(&handler{refresh: refresh})
		return streams
	}
	first := shown(time.Hour)
	if len(first) == 0 {
		t.Fatal("the control plane has no client")
	}
	var viewers sync.WaitGroup
	for range 50 {
		viewers.Go(func() {
			if next := shown(time.Hour); &next[0] != &first[0] {
				t.Error("a viewer has another overview")
			}
		})
	}
	viewers.Wait()
	if next := shown(0); len(next) == 0 || &next[0] == &first[0] {
		t.Error("the overview is not made again")
	}
}
