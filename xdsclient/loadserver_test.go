package xdsclient

import (
	"testing"
	"testing/synctest"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/internal/lrs"
)

// loadService is the LRS of a script.
type loadService struct {
	loadv3.UnimplementedLoadReportingServiceServer
	script *script
}

// loadWire is one LRS stream at the server.
type loadWire struct {
	t        *testing.T
	wire     loadv3.LoadReportingService_StreamLoadStatsServer
	requests chan *loadv3.LoadStatsRequest
	// left is closed when the client has ended its side.
	left chan struct{}
	end  chan error
	// began is when the stream began, since the start of the server.
	began time.Duration
}

func (s loadService) StreamLoadStats(wire loadv3.LoadReportingService_StreamLoadStatsServer) error {
	s.script.mu.Lock()
	refuse, began := s.script.refuse, time.Since(s.script.started)
	s.script.mu.Unlock()
	w := &loadWire{
		t: s.script.t, wire: wire, began: began,
		requests: make(chan *loadv3.LoadStatsRequest, 1000), left: make(chan struct{}), end: make(chan error, 1),
	}
	s.script.loads <- w
	if refuse != nil {
		return refuse
	}
	go func() {
		defer close(w.left)
		for {
			r, err := wire.Recv()
			if err != nil {
				return
			}
			w.requests <- r
		}
	}()
	select {
	case err := <-w.end:
		return err
	case <-w.left:
		return status.FromContextError(wire.Context().Err()).Err()
	}
}

// load waits for the next LRS stream to begin.
func (s *script) load() *loadWire {
	s.t.Helper()
	s.open()
	select {
	case w := <-s.loads:
		return w
	case <-time.After(patience):
		s.t.Fatal("no LRS stream was opened")
		return nil
	}
}

// noLoad checks that no LRS stream was opened.
func (s *script) noLoad() {
	s.t.Helper()
	s.open()
	synctest.Wait()
	select {
	case <-s.loads:
		s.t.Fatal("an LRS stream was opened")
	default:
	}
}

// request waits for the next request.
func (w *loadWire) request() *loadv3.LoadStatsRequest {
	w.t.Helper()
	select {
	case r := <-w.requests:
		return r
	case <-time.After(patience):
		w.t.Fatal("no load report came")
		return nil
	}
}

// hello takes the first request and answers it.
func (w *loadWire) hello(interval time.Duration, clusters ...string) {
	w.t.Helper()
	if r := w.request(); r.GetNode() == nil || len(r.GetClusterStats()) > 0 {
		w.t.Errorf("the first request is %v, want the node alone", r)
	}
	w.order(interval, clusters...)
}

// order asks for clusters, all of them if none is named.
func (w *loadWire) order(interval time.Duration, clusters ...string) {
	w.t.Helper()
	w.send(&loadv3.LoadStatsResponse{
		LoadReportingInterval: durationpb.New(interval), Clusters: clusters, SendAllClusters: len(clusters) == 0,
	})
}

func (w *loadWire) send(r *loadv3.LoadStatsResponse) {
	w.t.Helper()
	xdstest.NoError(w.t, w.wire.Send(r))
}

// expect takes the next report and checks its time and what it has.
func (w *loadWire) expect(after time.Duration, want ...*endpointv3.ClusterStats) {
	w.t.Helper()
	began := time.Now()
	r := w.request()
	xdstest.Equal(w.t, "the report came after", after, time.Since(began))
	sort := protocmp.SortRepeated(func(a, b *endpointv3.ClusterStats) bool { return a.ClusterName < b.ClusterName })
	xdstest.Equal(w.t, "the report", &loadv3.LoadStatsRequest{ClusterStats: want}, r, protocmp.Transform(), sort)
}

// quiet checks that no report comes for a while.
func (w *loadWire) quiet(d time.Duration) {
	w.t.Helper()
	pass(d)
	synctest.Wait()
	select {
	case r := <-w.requests:
		w.t.Errorf("got a report that nothing called for: %v", r)
	default:
	}
}

// ended waits until the client has ended the stream.
func (w *loadWire) ended() {
	w.t.Helper()
	select {
	case <-w.left:
	case <-time.After(patience):
		w.t.Fatal("the client did not end the LRS stream")
	}
}

func (w *loadWire) breakOff() { w.end <- status.Error(codes.Unavailable, "off for lunch") }

// counted counts RPCs to one locality of a cluster.
type counted struct {
	*load.Cluster
	locality *load.Locality
	name     string
}

// counts has the load of a cluster counted for the first server of a client.
func counts(c *XDSClient, name string) *counted { return countsFor(c, 0, name) }

func countsFor(c *XDSClient, server int, name string) *counted {
	c.mu.Lock()
	store := c.loadsFor(c.config.Servers[server])
	c.mu.Unlock()
	n := &counted{Cluster: store.Use(load.Key{Cluster: name, Service: name + "-eds"}), name: name}
	n.locality = n.Locality(load.LocalityID{Zone: "z"})
	return n
}

// rpcs counts n RPCs that succeed.
func (n *counted) rpcs(k int) {
	for range k {
		n.locality.Start()
		n.done()
	}
}

func (n *counted) done() {
	n.locality.End(balancer.DoneInfo{BytesSent: true, BytesReceived: true}, nil)
}

// stats is what a report says of the cluster.
func (n *counted) stats(interval time.Duration, issued, succeeded, inProgress uint64) *endpointv3.ClusterStats {
	stats := lrs.ClusterStats(&load.Report{
		Key:      load.Key{Cluster: n.name, Service: n.name + "-eds"},
		Interval: interval,
		Localities: []*load.LocalityReport{{
			ID:     load.LocalityID{Zone: "z"},
			Counts: load.Counts{Issued: issued, Succeeded: succeeded, InProgress: inProgress},
		}},
	})
	return stats
}
