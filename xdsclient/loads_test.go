package xdsclient

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/xdsclient/internal/lrs"
)

// loadScript is a client that reports load, and its server. testdata/loads.txt has what it does, a step a line, and what the
// server has seen by then, with the time since the beginning. "== name" begins with a new client. The steps are these, and those of a
// transcript, for streams of both kinds.
//
//	use blue, release blue    a channel begins or ceases to count the RPCs to a cluster
//	rpcs blue 3               3 RPCs to it succeed
//	start blue, end blue      an RPC begins, or succeeds
//	order 10s [blue ...]      the server asks for reports of these clusters, or of all; - is none, ? no interval
//	orders 9 10ms 1s 2s       it does so 9 times, with these intervals in turn, and 10 ms after each
//	break                     the server ends the stream of load reports with UNAVAILABLE
//	close                     the client is being closed
//	dialled                   how often the client has connected to the server
type loadScript struct {
	loadv3.UnimplementedLoadReportingServiceServer
	*transcript
	server *script
	// uses are those that are not released, and localities the one of each cluster that all RPCs go to.
	uses       map[string][]*load.Cluster
	localities map[string]*load.Locality

	mu     sync.Mutex
	stream *loadStream
	seen   []string
	// closed is the event that the client has been closed, which has no order among the others.
	closed string
	// reported, if not nil, gets the reports in place of seen.
	reported func(*loadv3.LoadStatsRequest)
}

// loadStream is an LRS stream at the server.
type loadStream struct {
	wire loadv3.LoadReportingService_StreamLoadStatsServer
	end  chan error
}

// newLoadScript starts a server and a client. The caller is in a bubble.
func newLoadScript(t *testing.T) *loadScript {
	x := &loadScript{transcript: newTranscript(t, []string{"SotW"}, nil), uses: make(map[string][]*load.Cluster), localities: make(map[string]*load.Locality)}
	x.server = x.servers[0].script
	x.server.stop()
	x.server.loads = x
	x.server.start()
	return x
}

// StreamLoadStats notes what the client does until one side ends the stream.
func (x *loadScript) StreamLoadStats(wire loadv3.LoadReportingService_StreamLoadStatsServer) error {
	x.server.mu.Lock()
	refuse := x.server.refuse
	x.server.mu.Unlock()
	if refuse != nil {
		x.note("stream, refused")
		return refuse
	}
	x.note("stream")
	s := &loadStream{wire, make(chan error, 1)}
	x.mu.Lock()
	x.stream = s
	x.mu.Unlock()
	left := make(chan struct{})
	go func() {
		defer close(left)
		for {
			r, err := wire.Recv()
			if err != nil {
				return
			}
			x.request(r)
		}
	}()
	select {
	case err := <-s.end:
		return err
	case <-left:
		x.note("closed")
		return status.FromContextError(wire.Context().Err()).Err()
	}
}

func (x *loadScript) note(event string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen = append(x.seen, fmt.Sprintf("%v %s", time.Since(x.server.started), event))
}

// request notes a request.
func (x *loadScript) request(r *loadv3.LoadStatsRequest) {
	var texts []string
	if n := r.GetNode(); n != nil {
		texts = append(texts, "node "+n.GetId())
		if slices.Contains(n.GetClientFeatures(), lrs.SendAllClusters) {
			texts = append(texts, lrs.SendAllClusters)
		}
	} else if x.reported != nil {
		x.reported(r)
		return
	}
	for _, s := range slices.SortedFunc(slices.Values(r.GetClusterStats()), func(a, b *endpointv3.ClusterStats) int {
		return cmp.Compare(a.GetClusterName(), b.GetClusterName())
	}) {
		l := s.GetUpstreamLocalityStats()[0]
		want := &endpointv3.ClusterStats{ // has what is printed, and nothing else
			ClusterName: s.GetClusterName(), ClusterServiceName: s.GetClusterName() + "-eds", LoadReportInterval: s.GetLoadReportInterval(),
			UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
				Locality:                &corev3.Locality{Zone: "z"},
				TotalIssuedRequests:     l.GetTotalIssuedRequests(),
				TotalSuccessfulRequests: l.GetTotalSuccessfulRequests(),
				TotalRequestsInProgress: l.GetTotalRequestsInProgress(),
			}},
		}
		if !proto.Equal(want, s) {
			x.t.Errorf("the report is %v, want %v", s, want)
		}
		texts = append(texts, fmt.Sprintf("%s in %v: %d begun, %d succeeded, %d in progress", s.GetClusterName(),
			s.GetLoadReportInterval().AsDuration(), l.GetTotalIssuedRequests(), l.GetTotalSuccessfulRequests(), l.GetTotalRequestsInProgress()))
	}
	if len(texts) == 0 {
		texts = []string{"nothing"}
	}
	x.note("report: " + strings.Join(texts, "; "))
}

// step does a step, and returns what the server has seen until nothing more happens.
func (x *loadScript) step(step string) (seen []string) {
	x.t.Helper()
	words := strings.Fields(step)
	switch words[0] {
	case "use":
		x.use(words[1])
	case "release":
		all := x.uses[words[1]]
		x.uses[words[1]] = all[1:]
		all[0].Release()
	case "rpcs":
		n, err := strconv.Atoi(words[2])
		xdstest.NoError(x.t, err)
		for range n {
			x.localities[words[1]].Start()
			x.end(words[1])
		}
	case "start":
		x.localities[words[1]].Start()
	case "end":
		x.end(words[1])
	case "order":
		x.order(words[1], words[2:]...)
	case "orders":
		n, err := strconv.Atoi(words[1])
		xdstest.NoError(x.t, err)
		for i := range n {
			x.order(words[3+i%len(words[3:])])
			pass(x.duration(words[2]))
		}
	case "break":
		x.stream.end <- statusOf(x.t, "Unavailable off for lunch")
	case "close":
		go func() {
			x.c.Close()
			x.mu.Lock()
			defer x.mu.Unlock()
			x.closed = fmt.Sprintf("%v the client is closed", time.Since(x.server.started))
		}()
	case "dialled":
		x.server.mu.Lock()
		x.seen = append(x.seen, strconv.Itoa(x.server.dialled))
		x.server.mu.Unlock()
	default:
		x.do(x.target, step)
	}
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	if seen, x.seen = x.seen, nil; x.closed != "" {
		seen, x.closed = append(seen, x.closed), ""
	}
	return seen
}

// use has the load of a cluster counted for the server.
func (x *loadScript) use(name string) {
	x.c.mu.Lock()
	store := x.c.shareOf(x.c.config.Servers[0]).loads
	x.c.mu.Unlock()
	cluster := store.Use(load.Key{Cluster: name, Service: name + "-eds"}, nil)
	x.uses[name] = append(x.uses[name], cluster)
	x.localities[name] = cluster.Localities([]load.LocalityID{{Zone: "z"}})[0]
}

func (x *loadScript) end(name string) {
	x.localities[name].End(balancer.DoneInfo{BytesSent: true, BytesReceived: true})
}

func (x *loadScript) duration(text string) time.Duration {
	x.t.Helper()
	d, err := time.ParseDuration(text)
	xdstest.NoError(x.t, err)
	return d
}

// order asks for clusters, all of them if none is named.
func (x *loadScript) order(interval string, clusters ...string) {
	x.t.Helper()
	r := &loadv3.LoadStatsResponse{Clusters: clusters, SendAllClusters: len(clusters) == 0}
	if slices.Equal(clusters, []string{"-"}) {
		r.Clusters, r.ReportEndpointGranularity = nil, true
	}
	switch interval {
	case "?":
	case "malformed":
		r.LoadReportingInterval = &durationpb.Duration{Seconds: 1, Nanos: -1}
	default:
		r.LoadReportingInterval = durationpb.New(x.duration(interval))
	}
	xdstest.NoError(x.t, x.stream.wire.Send(r))
}

func TestLoads(t *testing.T) {
	golden.Scripts(t, "testdata/loads.txt", 0, func(tb testing.TB) func(string) string {
		x := newLoadScript(tb.(*testing.T))
		tb.Cleanup(func() {
			if slices.Contains(x.c.config.Node.GetClientFeatures(), lrs.SendAllClusters) {
				tb.Error("ADS streams announce a feature of LRS")
			}
		})
		return func(step string) string { return strings.Join(x.step(step), " | ") }
	})
}

// gRPC servers take messages of up to 4 MiB.
func TestLargeReportIsSeveralMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 10_000
		x := newLoadScript(t)
		seen := make(map[string]int)
		messages := 0
		x.reported = func(r *loadv3.LoadStatsRequest) {
			messages++
			for _, s := range r.GetClusterStats() {
				seen[s.GetClusterName()]++
			}
		}
		for i := range n {
			name := fmt.Sprintf("%s-%d", strings.Repeat("long-name.", 20), i)
			x.use(name)
			x.localities[name].Start()
		}
		x.step("wait 0s")
		x.step("order 10s")
		x.step("wait 11s")
		xdstest.Equal(t, "clusters reported", n, len(seen))
		for name, times := range seen {
			if times != 1 {
				t.Fatalf("cluster %q was reported %d times", name, times)
			}
		}
		if messages < 4 || messages > 10 {
			t.Errorf("the report came in %d messages, want about one for each MiB", messages)
		}
	})
}

// Orders without end are read slowly, and reports go on.
func TestFloodOfOrders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := newLoadScript(t)
		x.step("use blue")
		start := time.Now()
		for range 10_000 {
			x.order("1h", "blue", strings.Repeat("x", 200))
		}
		if took := time.Since(start); took < 10*time.Second {
			t.Errorf("10,000 orders were read within %v, want them to be slowed down", took)
		}
		x.step("order 10s")
		x.step("wait 1m")
		x.step("rpcs blue 1")
		if got := x.step("wait 10s"); len(got) != 1 || !strings.HasSuffix(got[0], "report: blue in 10s: 1 begun, 1 succeeded, 0 in progress") {
			t.Errorf("after the flood the server got %q, want one report", got)
		}
	})
}
