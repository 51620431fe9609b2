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
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/internal/access"
)

// LoadOptions configure [LoadReports]. The zero value has every default.
type LoadOptions struct {
	// Interval is the reporting interval that clients are asked for; the default is 10 s.
	// gRPC clients report at most once a second.
	Interval time.Duration
	// Identify is [Options.Identify].
	Identify func(ctx context.Context, node *corepb.Node) (is *corepb.Node, until time.Time, err error)
	// Access decides which node a client may be, and of which clusters it may report the load. OnDenied, unless it is
	// nil, is called for the load of another one, which is not counted, by the goroutines of the streams.
	Access   Access
	OnDenied func(cluster string)
	// Known reports whether there is a cluster, for the client whose stream has the context. The load of others, which clients may make up, is
	// not counted. It is called for every cluster in a report, by the goroutines of the streams. nil: there are all.
	Known func(ctx context.Context, cluster string) bool
}

// LoadReports is the Load Reporting Service (LRS). It requests the load of all clusters with lrs_server
// from clients and adds it up. Beyond the last six intervals ([LoadReports.Recent]) it keeps no history: for other rates, compare Snapshots. It is safe for
// concurrent use, independent of [Server], and may be registered with several gRPC servers.
//
// It ignores new clusters, localities, drop categories and metrics when the sums take about 256 MiB. Then clusters without RPCs in progress
// that no client has reported for three intervals are forgotten: when clients report one again, its load begins with 0.
type LoadReports struct {
	opts LoadOptions
	// closing ends every stream when it is done.
	closing context.Context
	close   context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex
	sums map[loadKey]*loadSum
	// bytes is about what the sums take in memory, with the numbers of RPCs in progress of the streams; limit is what they
	// may take, and forgot when sums were last forgotten.
	bytes, limit int
	forgot       time.Time
	// changed is closed, and replaced, after every report that has a cluster, and every end of a stream.
	changed chan struct{}
}

// NewLoadReports returns LoadReports without any load.
func NewLoadReports(opts LoadOptions) *LoadReports {
	opts.Interval = cmp.Or(max(0, opts.Interval), 10*time.Second)
	l := &LoadReports{opts: opts, sums: make(map[loadKey]*loadSum), limit: bounds.LoadBytes, changed: make(chan struct{})}
	l.closing, l.close = context.WithCancel(context.Background())
	return l
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
	l.close()
	l.mu.Unlock()
	l.running.Wait()
}

// Await waits until a Snapshot satisfies until, and returns it, or the context's error. until is
// called at once, after every report that has a cluster, and after every end of a stream, without locks.
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

// wake has the calls of Await look again. The caller holds mu.
func (l *LoadReports) wake() {
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
	st := l.begin()
	if st == nil {
		return errClosed
	}
	defer st.end()
	defer st.recheck.end()
	// It ends with the stream, at the latest when this handler has returned.
	l.running.Go(func() { st.over <- st.receive(wire) })
	select {
	case err := <-st.over:
		return err
	case <-l.closing.Done():
		return errClosed
	}
}

// loadStream is one client.
type loadStream struct {
	reports *LoadReports
	// grant is what LoadOptions.Access gives the client. Only the reader uses it.
	grant access.Grant
	// recheck calls LoadOptions.Identify again.
	recheck recheck
	// over has why the stream ends: what receive returned, or the error of recheck.
	over chan error
	// inProgress is the client's last report for each locality that has RPCs in progress, which is subtracted
	// when the stream ends. It and ended are guarded by LoadReports.mu.
	inProgress map[*LocalityLoad]uint64
	ended      bool
}

// begin begins a stream. It returns nil if the reports are closed.
func (l *LoadReports) begin() *loadStream {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing.Err() != nil {
		return nil
	}
	l.running.Add(1)
	return &loadStream{reports: l, over: make(chan error, 2), inProgress: make(map[*LocalityLoad]uint64)}
}

func (st *loadStream) end() {
	l := st.reports
	l.mu.Lock()
	for locality := range st.inProgress {
		st.setInProgress(locality, 0)
	}
	st.ended = true
	l.wake()
	l.mu.Unlock()
	l.running.Done()
}

// receive adds reports until the client closes the stream.
func (st *loadStream) receive(wire loadpb.LoadReportingService_StreamLoadStatsServer) error {
	opts := &st.reports.opts
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
			fail := func(err error) { st.over <- err }
			if st.grant, _, err = st.recheck.begin(wire.Context(), opts.Identify, opts.Access, r.GetNode(), fail); err != nil {
				return err
			}
			if err := wire.Send(&loadpb.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: durationpb.New(opts.Interval)}); err != nil {
				return err
			}
		}
		st.add(slices.DeleteFunc(r.GetClusterStats(), func(c *endpointpb.ClusterStats) bool { return !st.counts(wire.Context(), c.GetClusterName()) }))
	}
}

// counts reports whether the load of a cluster that the client reports is counted.
func (st *loadStream) counts(ctx context.Context, cluster string) bool {
	opts := &st.reports.opts
	if !st.grant.Everything() && st.grant.Check(xdsname.Canonical(cluster)) != nil {
		if opts.OnDenied != nil {
			opts.OnDenied(cluster)
		}
		return false
	}
	return opts.Known == nil || opts.Known(ctx, cluster)
}
