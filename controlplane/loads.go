package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	loadpb "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Bounds of what LoadReports remembers, so that no client can fill the memory.
const (
	maxLoadClusters   = 100_000
	maxLoadLocalities = 1_000 // of a cluster
	maxLoadNames      = 1_000 // of categories, or of metrics, in one place
)

// LoadOptions configure [LoadReports]. The zero value has every default.
type LoadOptions struct {
	// Interval is how often clients are asked to report; the default is 10 s. gRPC
	// clients report once a second at most.
	Interval time.Duration
	// Clusters are the names of the clusters whose load is asked for; the default is
	// all.
	Clusters []string
}

// LoadReports is the Load Reporting Service (LRS). It asks clients for the load of
// clusters with lrs_server, and sums up what they report. It keeps no history: for rates,
// compare Snapshots. It is safe for concurrent use, apart
// from [Server], and may be registered with any gRPC server, or with several.
//
// Beyond 100,000 clusters, 1,000 localities of one of them, or 1,000 names of
// metrics or of categories of drops in one place, further ones are left out.
type LoadReports struct {
	opts LoadOptions
	// stop ends every stream when it is closed.
	stop    chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	streams int
	opened  uint64
	loads   map[loadKey]*clusterLoad
	// changed is closed and replaced at every report, and at every begin and end of a
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
		loads:   make(map[loadKey]*clusterLoad),
		changed: make(chan struct{}),
	}
}

// Register adds envoy.service.load_stats.v3.LoadReportingService to a gRPC server:
// to the one that serves the clusters, as lrs_server has to be "self" for gRPC
// clients.
func (l *LoadReports) Register(r grpc.ServiceRegistrar) {
	loadpb.RegisterLoadReportingServiceServer(r, &lrs{reports: l})
}

// Close ends all streams, and from then on every new one, with UNAVAILABLE, and
// returns when they have ended. What was reported stays. Close is idempotent.
func (l *LoadReports) Close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.stop)
	}
	l.mu.Unlock()
	l.running.Wait()
}

// Streams returns the number of present streams, and of all since the beginning.
func (l *LoadReports) Streams() (open int, opened uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.streams, l.opened
}

// Await returns once until holds, with the Snapshot for which it does, or with the
// context's error. until is asked at once, and again at every report and whenever a
// stream begins or ends. It is called without a lock.
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

// notify wakes those who wait. The caller holds mu.
func (l *LoadReports) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// lrs is apart from LoadReports so that the service's method is no part of its API.
type lrs struct {
	loadpb.UnimplementedLoadReportingServiceServer
	reports *LoadReports
}

func (s *lrs) StreamLoadStats(wire loadpb.LoadReportingService_StreamLoadStatsServer) error {
	l := s.reports
	if !l.begin() {
		return errClosed
	}
	// st has what is subtracted when the stream ends.
	st := &loadStream{reports: l, inProgress: make(map[*localityLoad]uint64)}
	defer st.end()
	received := make(chan error, 1)
	// It ends with the stream, at the latest when the handler has returned.
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

// begin counts a stream, unless the reports are closed.
func (l *LoadReports) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.running.Add(1)
	l.streams++
	l.opened++
	l.notify()
	return true
}

// loadStream is one client.
type loadStream struct {
	reports *LoadReports
	// inProgress is what the client last said of each locality. It is nil once the
	// stream has ended. Guarded by LoadReports.mu.
	inProgress map[*localityLoad]uint64
}

// receive adds up reports until the client closes the stream.
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
			if err := wire.Send(st.reports.order()); err != nil {
				return err
			}
		}
		st.addReport(r)
	}
}

func (st *loadStream) addReport(r *loadpb.LoadStatsRequest) {
	l := st.reports
	l.mu.Lock()
	defer l.mu.Unlock()
	if st.inProgress == nil {
		return
	}
	for _, stats := range r.GetClusterStats() {
		if c := l.load(loadKey{stats.GetClusterName(), stats.GetClusterServiceName()}); c != nil {
			c.add(stats, st)
		}
	}
	l.notify()
}

func (l *LoadReports) load(k loadKey) *clusterLoad {
	c := l.loads[k]
	if c == nil && len(l.loads) < maxLoadClusters {
		c = &clusterLoad{dropped: make(map[string]uint64), localities: make(map[localityKey]*localityLoad)}
		l.loads[k] = c
	}
	return c
}

func (st *loadStream) end() {
	l := st.reports
	l.mu.Lock()
	for locality, n := range st.inProgress {
		locality.inProgress -= n
	}
	st.inProgress = nil
	l.streams--
	l.notify()
	l.mu.Unlock()
	l.running.Done()
}
