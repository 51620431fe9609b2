package statuspage

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// quick returns a handler that looks for changes often.
func quick(opts ...Option) *handler {
	h := newHandler(opts...)
	h.refresh = 5 * time.Millisecond
	return h
}

// serve serves a handler until the test ends.
func serve(t *testing.T, h http.Handler, configure func(*http.Server)) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	if configure != nil {
		configure(s.Config)
	}
	s.Start()
	t.Cleanup(func() {
		_ = s.Config.Shutdown(testutils.Context(t)) // which ends streams
		s.Close()
	})
	return s
}

// follower reads a stream of events.
type follower struct {
	t     *testing.T
	lines *bufio.Scanner
	stop  context.CancelFunc
}

func follow(t *testing.T, address string) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(testutils.Context(t))
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	xdstest.NoError(t, err)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); resp.Body.Close(); http.DefaultClient.CloseIdleConnections() })
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: %s, %s", address, resp.Status, resp.Header.Get("Content-Type"))
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 16<<20)
	return &follower{t, lines, cancel}
}

// next returns the next event, or a comment as the event ":". It returns "" at the end.
func (f *follower) next() (event, data string) {
	for f.lines.Scan() {
		switch line := f.lines.Text(); {
		case line == "":
			return event, data
		case line[0] == ':':
			event = ":"
		default:
			field, value, _ := strings.Cut(line, ": ")
			if field == "event" {
				event = value
			} else {
				data += value
			}
		}
	}
	return "", ""
}

// await reads until an event of a name is as wanted.
func (f *follower) await(name string, ok func(data string) bool) {
	f.t.Helper()
	for {
		event, data := f.next()
		if event == "" {
			f.t.Fatalf("the stream ended before %s was as wanted", name)
		}
		if event == name && ok(data) {
			return
		}
	}
}

func whatever(string) bool { return true }

func TestEventsFollowChanges(t *testing.T) {
	backend := testutils.StartBackend(t, "b")
	plane, conn := startChannel(t, "events", oneCluster("before", backend)...)
	server := serve(t, quick(), nil)
	f := follow(t, server.URL+"/events?show=graph&show=changes")
	if event, data := f.next(); event != "hello" || !strings.Contains(data, `"now"`) {
		t.Errorf("first event %s %s, want hello with the time", event, data)
	}
	f.await("graph", whatever)
	xdstest.NoError(t, call(t, conn))
	leadsTo := func(cluster string) func(string) bool {
		return func(data string) bool {
			var g graphView
			xdstest.NoError(t, json.Unmarshal([]byte(data), &g))
			return len(g.Clusters) == 1 && g.Clusters[0].Name == cluster && g.Clusters[0].State == "READY"
		}
	}
	f.await("graph", leadsTo("before"))
	plane.Set(t, xdsmsg.EDSCluster("after", ""), xdsmsg.SimpleEndpoints("after", backend.Addr()))
	plane.Set(t, xdsmsg.RouteConfig("routes", "service", xdsmsg.PrefixRoute("", "after")))
	// The new cluster is connected by its first RPC.
	ctx, stop := context.WithCancel(context.Background())
	var calling sync.WaitGroup
	calling.Go(func() {
		for ctx.Err() == nil {
			_ = call(t, conn)
		}
	})
	f.await("graph", leadsTo("after"))
	stop()
	calling.Wait()
}

// A section is sent when the stream begins, and again only when it has changed: a stream
// on which nothing happens has comments alone.
func TestEventsOnlyOfChanges(t *testing.T) {
	h := quick()
	h.heartbeat = 50 * time.Millisecond
	f := follow(t, serve(t, h, nil).URL+"/events?show=overview&show=channels&show=overview")
	seen := map[string]int{}
	for seen[":"] < 3 {
		event, _ := f.next()
		if event == "" {
			t.Fatal("the stream ended")
		}
		seen[event]++
	}
	if seen["hello"] != 1 || seen["overview"] != 1 || seen["channels"] != 1 {
		t.Errorf("events %v, want each section once", seen)
	}
}

func TestEventsAreForABoundedNumber(t *testing.T) {
	h := quick()
	h.streams = make(chan struct{}, 2)
	server := serve(t, h, nil)
	first, second := follow(t, server.URL+"/events?show=overview"), follow(t, server.URL+"/events?show=overview")
	first.await("overview", whatever)
	second.await("overview", whatever)
	if status, body := read(t, testutils.Context(t), server.URL+"/events?show=overview"); status != http.StatusServiceUnavailable {
		t.Errorf("third stream: %d %s, want 503", status, body)
	}
	first.stop()
	awaitPlace(t, h)
	follow(t, server.URL+"/events?show=overview").await("overview", whatever)
}

// awaitPlace waits until a stream may be opened.
func awaitPlace(t *testing.T, h *handler) {
	t.Helper()
	select {
	case h.streams <- struct{}{}:
		<-h.streams
	case <-testutils.Context(t).Done():
		t.Fatal("no stream ends")
	}
}

// Shutdown waits for requests, and does not end their contexts.
func TestEventsEndWithTheServer(t *testing.T) {
	h := quick()
	for range 2 { // a handler may be served again
		server := serve(t, h, nil)
		f := follow(t, server.URL+"/events?show=overview")
		f.await("overview", whatever)
		if err := server.Config.Shutdown(testutils.Context(t)); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := server.Config.Shutdown(testutils.Context(t)); err != nil {
			t.Errorf("second Shutdown: %v", err)
		}
		for event := "?"; event != ""; event, _ = f.next() {
		}
	}
	if n := len(h.streams); n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

// The timeouts of the server are for answers that end.
func TestEventsOutliveTimeouts(t *testing.T) {
	h := quick()
	h.heartbeat = 20 * time.Millisecond
	server := serve(t, h, func(s *http.Server) { s.ReadTimeout, s.WriteTimeout = 50*time.Millisecond, 50*time.Millisecond })
	start := time.Now()
	f := follow(t, server.URL+"/events?show=overview")
	for time.Since(start) < 200*time.Millisecond {
		if event, _ := f.next(); event == "" {
			t.Fatalf("the stream ended after %v", time.Since(start))
		}
	}
}

// A browser that does not read keeps its place for a while only.
func TestEventsEndWithoutAReader(t *testing.T) {
	h := quick()
	h.patience, h.heartbeat, h.streams = 50*time.Millisecond, 0, make(chan struct{}, 1)
	server := serve(t, h, func(s *http.Server) {
		s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			_ = c.(*net.TCPConn).SetWriteBuffer(1)
			return ctx
		}
	})
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	xdstest.NoError(t, err)
	defer conn.Close()
	xdstest.NoError(t, conn.(*net.TCPConn).SetReadBuffer(1))
	_, err = conn.Write([]byte("GET /events?show=overview HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	xdstest.NoError(t, err)
	_, err = bufio.NewReaderSize(conn, 16).ReadByte()
	xdstest.NoError(t, err)
	awaitPlace(t, h)
}

func TestManyViewersAtOnce(t *testing.T) {
	backend := testutils.StartBackend(t, "b")
	plane, conn := startChannel(t, "viewers", oneCluster("c", backend)...)
	xdstest.NoError(t, call(t, conn))
	h := quick(WithControlPlane(plane.Control(), plane.Store()))
	server := serve(t, h, nil)
	all := "?show=overview&show=channels&show=clients&show=graph&show=resources&show=clusters&show=changes&show=peers&show=served&resources.state=ignored"
	ctx, stop := context.WithCancel(context.Background())
	var viewers sync.WaitGroup
	for range 8 {
		f := follow(t, server.URL+"/events"+all)
		context.AfterFunc(ctx, f.stop)
		viewers.Go(func() {
			for event := "?"; event != ""; event, _ = f.next() {
			}
		})
		viewers.Go(func() {
			for ctx.Err() == nil {
				if w := get(t, h, "/data"+all); w.Code != http.StatusOK {
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
