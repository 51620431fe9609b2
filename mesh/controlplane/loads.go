package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadpb "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/access"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdsname"
)

// LoadOptions configure [LoadReports]. The zero value has every default.
type LoadOptions struct {
	// Interval is the reporting interval that clients are asked for; the default is 10 s.
	// gRPC clients report at most once a second.
	Interval time.Duration
	// Clusters are the names of the clusters to report; the default is all.
	Clusters []string
	// Identify is [Options.Identify], but that streams do not end when credentials expire.
	Identify func(ctx context.Context, node *corepb.Node) (is *corepb.Node, until time.Time, err error)
	// Access decides which node a client may be, and of which clusters it may report the load. OnDenied, unless it is
	// nil, is called for the load of another one, which is not counted, by the goroutines of the streams.
	Access   Access
	OnDenied func(cluster string)
	// Authorize decides whether a client may report the load of a cluster; with an error, the load
	// is not counted. ctx is that of the client's stream, with its peer and metadata. It is called
	// for every cluster in a report, by the goroutines of the streams. nil: it may.
	Authorize func(ctx context.Context, cluster string) error
}

// LoadReports is the Load Reporting Service (LRS). It requests the load of clusters with lrs_server
// from clients and adds it up. It keeps no history: for rates, compare Snapshots. It is safe for
// concurrent use, independent of [Server], and may be registered with several gRPC servers.
//
// It ignores localities beyond 1,000 of a cluster, names of metrics or of drop categories beyond 1,000 in one place,
// and all new clusters, localities and names when they take 256 MiB, or when the client's address and certificate take half of
// what is left for all. Where there is no room, a sum that no client has added to for three intervals is forgotten: when
// clients report it again, it begins with 0.
type LoadReports struct {
	opts LoadOptions
	// stop ends every stream when it is closed.
	stop    chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	streams map[*loadStream]struct{}
	opened  uint64
	loads   map[loadKey]*clusterLoad
	room    loadRoom
	// changed is closed and replaced at every report that changes a sum, and at every begin and end of a
	// stream.
	changed chan struct{}
}

type loadKey struct{ cluster, service string }

// NewLoadReports returns LoadReports without any load.
func NewLoadReports(opts LoadOptions) *LoadReports {
	opts.Interval = cmp.Or(opts.Interval, 10*time.Second)
	return &LoadReports{
		opts:    opts,
		stop:    make(chan struct{}),
		streams: make(map[*loadStream]struct{}),
		loads:   make(map[loadKey]*clusterLoad),
		room:    newLoadRoom(bounds.LoadBytes),
		changed: make(chan struct{}),
	}
}

// Register adds envoy.service.load_stats.v3.LoadReportingService to a gRPC server: the one that
// serves the clusters, as gRPC clients require "self" in lrs_server.
func (l *LoadReports) Register(r grpc.ServiceRegistrar) {
	loadpb.RegisterLoadReportingServiceServer(r, &lrs{reports: l})
}

// Close ends all streams, and every later one, with UNAVAILABLE, and waits for them. The reported
// load is kept. Close is idempotent.
func (l *LoadReports) Close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.stop)
	}
	l.mu.Unlock()
	l.running.Wait()
}

// Streams returns the number of present streams and of all streams so far.
func (l *LoadReports) Streams() (open int, opened uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.streams), l.opened
}

// Await waits until a Snapshot satisfies until, and returns it, or the context's error. until is
// called at once, after every report that changes a sum, and after every begin and end of a stream, without locks.
func (l *LoadReports) Await(ctx context.Context, until func([]ClusterLoad) bool) ([]ClusterLoad, error) {
	for {
		l.mu.Lock()
		loads, changed := l.snapshot(), l.changed
		l.mu.Unlock()
		if until(loads) {
			return loads, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return loads, fmt.Errorf("waiting for load reports: %w", ctx.Err())
		}
	}
}

// notify wakes the calls of Await. The caller holds mu.
func (l *LoadReports) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// lrs keeps the service's method out of the API of LoadReports.
type lrs struct {
	loadpb.UnimplementedLoadReportingServiceServer
	reports *LoadReports
}

func (s *lrs) StreamLoadStats(wire loadpb.LoadReportingService_StreamLoadStatsServer) error {
	l := s.reports
	from, _ := peer.FromContext(wire.Context())
	st := l.begin(access.Peer(from))
	if st == nil {
		return errClosed
	}
	defer st.end()
	received := make(chan error, 1)
	// It ends with the stream, at the latest when this handler has returned.
	l.running.Go(func() { received <- st.receive(wire) })
	select {
	case err := <-received:
		return err
	case <-l.stop:
		return errClosed
	}
}

func (l *LoadReports) order() *loadpb.LoadStatsResponse {
	return &loadpb.LoadStatsResponse{
		Clusters:              l.opts.Clusters,
		SendAllClusters:       len(l.opts.Clusters) == 0,
		LoadReportingInterval: durationpb.New(l.opts.Interval),
	}
}

// begin counts a stream of a peer. It returns nil if the reports are closed.
func (l *LoadReports) begin(peer string) *loadStream {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.running.Add(1)
	st := &loadStream{reports: l, peer: l.room.join(peer), inProgress: make(map[*localityLoad]uint64)}
	l.streams[st] = struct{}{}
	l.opened++
	l.notify()
	return st
}

// loadStream is one client.
type loadStream struct {
	reports *LoadReports
	// grant is what LoadOptions.Access gives the client. Only the reader uses it.
	grant access.Grant

	// The following is guarded by LoadReports.mu.

	peer *loadPeer
	// inProgress is the client's last report for each locality that has RPCs in progress, which is subtracted
	// when the stream ends.
	inProgress map[*localityLoad]uint64
	ended      bool
}

// receive adds reports until the client closes the stream.
func (st *loadStream) receive(wire loadpb.LoadReportingService_StreamLoadStatsServer) error {
	for first := true; ; first = false {
		r, err := wire.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if first {
			if r.GetNode() == nil {
				return status.Error(codes.InvalidArgument, "the first LoadStatsRequest of a stream has no node")
			}
			var err error
			opts := &st.reports.opts
			if st.grant, _, _, err = grant(wire.Context(), opts.Identify, opts.Access, r.GetNode()); err != nil {
				return err
			}
			if err := wire.Send(st.reports.order()); err != nil {
				return err
			}
		}
		st.addReport(st.authorized(wire.Context(), r))
	}
}

// authorized returns the load that the client may report.
func (st *loadStream) authorized(ctx context.Context, r *loadpb.LoadStatsRequest) []*endpointpb.ClusterStats {
	opts := &st.reports.opts
	if opts.Authorize == nil && st.grant.Everything() {
		return r.GetClusterStats()
	}
	return slices.DeleteFunc(r.GetClusterStats(), func(c *endpointpb.ClusterStats) bool {
		if st.grant.Check(xdsname.Canonical(c.GetClusterName())) != nil {
			if opts.OnDenied != nil {
				opts.OnDenied(c.GetClusterName())
			}
			return true
		}
		return opts.Authorize != nil && opts.Authorize(ctx, c.GetClusterName()) != nil
	})
}

func (st *loadStream) addReport(loads []*endpointpb.ClusterStats) {
	if len(loads) == 0 {
		return
	}
	l := st.reports
	l.mu.Lock()
	defer l.mu.Unlock()
	if st.ended {
		return
	}
	hasCounts := false
	r := &report{stream: st, at: l.room.age()}
	for _, stats := range loads {
		hasCounts = r.add(stats) || hasCounts
	}
	if hasCounts {
		l.notify()
	}
}

func (st *loadStream) end() {
	l := st.reports
	l.mu.Lock()
	for locality := range st.inProgress {
		st.setInProgress(locality, 0)
	}
	st.ended = true
	delete(l.streams, st)
	l.room.leave(st.peer)
	l.notify()
	l.mu.Unlock()
	l.running.Done()
}
