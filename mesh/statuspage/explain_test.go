package statuspage

import (
	"context"
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
	"github.com/dynxds/dynxds/mesh/internal/styled"
	"github.com/dynxds/dynxds/testutils"
)

func TestExplain(t *testing.T) {
	backend := testutils.StartBackend(t, "b")
	_, conn := startChannel(t, "explain",
		xdsmsg.DefaultListener("service", "routes"),
		xdsmsg.RouteConfig("routes", "service", xdsmsg.With(xdsmsg.PrefixRoute("", "other"), `match { headers { name: "x-user" string_match { exact: "7" } } }`), xdsmsg.PrefixRoute("", "c")),
		xdsmsg.EDSCluster("c", ""), xdsmsg.EDSCluster("other", ""), xdsmsg.SimpleEndpoints("c", backend.Addr()))
	xdstest.NoError(t, call(t, conn))
	h := Handler()
	query := url.Values{"target": {"xds:///service"}, "method": {"/grpc.testing.TestService/EmptyCall"}, "header": {"X-User: 7", "x-user:8"}}
	w := get(t, h, "/explain?"+query.Encode())
	for _, want := range []string{`"text":"outcome      route 1 → cluster \"c\", priority 0, 1 endpoint"`, `no: header x-user is \"7,8\"`} {
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d %s, want %s", w.Code, w.Body, want)
		}
	}

	for target, want := range map[string]string{"nobody": "nobody", "service": ""} {
		w := get(t, h, "/explain?target=xds:///"+target+"&method="+url.QueryEscape("/a.B/<img src=x onerror=1>\n"))
		if kind := w.Header().Get("Content-Type"); !strings.Contains(w.Body.String(), want) || kind != "application/json" && kind != "text/plain; charset=utf-8" {
			t.Errorf("%s: %s %s, want %q", target, kind, w.Body, want)
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
		var lines styled.Text
		xdstest.NoError(t, json.Unmarshal(w.Body.Bytes(), &lines))
		outcomes = append(outcomes, lines[2].Text)
		if lines[3].Text != "" {
			t.Errorf("channel %d has the note %q", c.Number, lines[3].Text)
		}
	}
	xdstest.Equal(t, "outcomes", []string{`outcome      route 0 → cluster "first", priority 0, 1 endpoint`, `outcome      route 0 → cluster "second", priority 0, 1 endpoint`}, outcomes)
	if w := get(t, h, "/explain?target=xds:///service&method=/a.B/C&channel=999999"); !strings.Contains(w.Body.String(), `the target "xds:///service" and the number 999999`) {
		t.Errorf("channel 999999: %d %s", w.Code, w.Body)
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
		for range 2 * cap(h.(*handler).turns) {
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

	for range cap(h.(*handler).turns) {
		h.(*handler).turns <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, w := httptest.NewRequestWithContext(ctx, http.MethodGet, "/data", nil), httptest.NewRecorder()
	r.Host = "127.0.0.1"
	if h.ServeHTTP(w, r); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a browser whose turn does not come got %d: %s", w.Code, w.Body)
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

// All viewers are shown one snapshot, with what a control plane says of its clients, until it is old.
func TestViewersShareASnapshot(t *testing.T) {
	server, conn := startChannel(t, "shared", oneCluster("c", testutils.StartBackend(t, "b"))...)
	xdstest.NoError(t, call(t, conn))
	h := newHandler(WithControlPlane(server.Control(), server.Store()))
	h.refresh = time.Hour
	first := h.snapshots.get(h)
	var viewers sync.WaitGroup
	for range 50 {
		viewers.Go(func() {
			if streams := h.snapshots.get(h).streams; len(streams) == 0 || &streams[0] != &first.streams[0] {
				t.Error("a viewer has another overview, or none")
			}
		})
	}
	viewers.Wait()
	h.refresh, h.snapshots.work = 0, 0
	if first.served(); h.snapshots.work == 0 {
		t.Error("listing the store is no work")
	}
	h.snapshots.work = 0
	if h.snapshots.get(h) == first {
		t.Error("the snapshot is not taken again")
	}
}

func TestManyViewersAtOnce(t *testing.T) {
	plane, conn := startChannel(t, "viewers", oneCluster("c", testutils.StartBackend(t, "b"))...)
	xdstest.NoError(t, call(t, conn))
	h := quick(WithControlPlane(plane.Control(), plane.Store()))
	ctx, stop := context.WithCancel(context.Background())
	var viewers sync.WaitGroup
	for range 4 {
		viewers.Go(func() {
			for ctx.Err() == nil {
				if w := get(t, h, everything+"&resources.state=ignored"); w.Code != http.StatusOK {
					t.Errorf("data: %d", w.Code)
				}
			}
		})
	}
	for i := range 20 {
		plane.Set(t, xdsmsg.RouteConfig("routes", "service", xdsmsg.PrefixRoute("/"+strings.Repeat("x", i), "c"), xdsmsg.PrefixRoute("", "c")))
		xdstest.NoError(t, call(t, conn))
	}
	stop()
	viewers.Wait()
}
