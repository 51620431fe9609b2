// Package configselector decides, for each RPC, which route it takes and with which
// filters, cluster and timeout.
//
// It does not carry the RPC out: an RPC whose route only names a cluster, on a channel
// whose only filter is the router, goes to gRPC at once; any other goes to internal/router,
// which runs filters, rewrites, mirrors and retries. Nor does it pick an endpoint (the
// balancer does, by the Decision made here), or decode or watch resources: the resolver
// makes an immutable Selector of one version of decoded resources and publishes it to the
// channel's interceptors. What outlives a Selector is in the Channel, and in the instances of filters.
package configselector

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	estats "google.golang.org/grpc/experimental/stats"

	"github.com/dynxds/dynxds/configselector/internal/router"
	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/filterchain"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Config is what a Selector is made of.
type Config struct {
	// Version is the version of the snapshot, see decision.Decision.
	Version uint64
	// Listener and VirtualHost are what the control plane configured for the
	// channel's target and authority.
	Listener    *xdsresource.Listener
	VirtualHost *xdsresource.VirtualHost
	// RouteConfigName names the RouteConfiguration in errors.
	RouteConfigName string
	// Last is the Selector before this one, whose instances of filters stay in use; nil: there is none.
	Last *Selector
}

// Channel is what the successive Selectors of one channel share. It is safe for concurrent use.
type Channel struct {
	// Observe, if it is set before there is a Selector, is called when an RPC begins.
	Observe func() rpctrace.Observer

	*router.Channel
}

// NewChannel returns the Channel of cc, which identifies its Decisions.
// authority is the ":authority" of RPCs that set no other. secure reports whether the
// channel's credentials check the authority, as TLS does. metrics may be nil.
func NewChannel(cc *grpc.ClientConn, authority string, secure bool, metrics estats.MetricsRecorder) *Channel {
	return &Channel{Channel: router.NewChannel(cc, authority, secure, metrics)}
}

// Selector routes the RPCs of one channel by one version of its
// configuration. It is immutable and safe for concurrent use.
type Selector struct {
	// Reselect routes the RPC of a Decision of another version again and returns the
	// new cluster. It is for pickers and takes no lock. gRPC keeps it for as long as the application keeps a channel, closed
	// or not, so it does not refer to the Selector, whose chains keep the instances of filters open.
	Reselect func(old *decision.Decision) (cluster string, err error)

	routes   *router.Routes
	listener *xdsresource.Listener
	ch       *Channel

	// instances has an instance of each filter that clients can run, by the filter's name.
	instances map[string]*filterchain.Instance
	// base is the chain of routes without overrides. special has those of the other routes.
	base    *filterchain.Chain
	special map[destination]*filterchain.Chain
}

// destination is the route of an RPC and the cluster that was drawn for the RPC, nil if the route forwards nothing.
type destination struct {
	route   *xdsresource.Route
	cluster *xdsresource.WeightedCluster
}

var _ grpcbridge.Runner = (*Selector)(nil)

// NewSelector returns a Selector.
func (ch *Channel) NewSelector(c Config) *Selector {
	s := &Selector{
		routes:   router.NewRoutes(ch.Channel, c.Version, c.VirtualHost, c.RouteConfigName),
		listener: c.Listener, ch: ch, instances: make(map[string]*filterchain.Instance),
	}
	s.Reselect = s.routes.Reselect
	s.instantiate(cmp.Or(c.Last, new(Selector)))
	s.buildChains()
	return s
}

// instantiate sets the instances. A filter with the name and type of one in the last Selector takes over the instance.
func (s *Selector) instantiate(last *Selector) {
	for _, entry := range s.listener.Filters {
		filter, ok := entry.Filter.(httpfilter.ClientFilter)
		if !ok {
			continue
		}
		in := last.instances[entry.Name]
		if in == nil || in.Type != filterchain.TypeOf(filter) {
			in = filterchain.NewInstance(filter, httpfilter.ClientInstanceInfo{Name: entry.Name, Target: s.ch.Target(), Metrics: s.ch.Metrics})
		}
		s.instances[entry.Name] = in
	}
}

func (s *Selector) buildChains() {
	vh := s.routes.VirtualHost
	chains := chains{s, make(map[builtOf]interceptor)}
	s.base = chains.build(vh.Overrides)
	if s.base.Passes() && len(s.listener.Filters) <= 1 {
		return // Only the router is left, which has no overrides.
	}
	s.special = make(map[destination]*filterchain.Chain)
	for _, route := range vh.Routes {
		clusters := router.ClustersOf(route)
		if len(route.Overrides) == 0 && !slices.ContainsFunc(clusters, overrides) {
			continue
		}
		if len(clusters) == 0 {
			s.special[destination{route, nil}] = chains.build(route.Overrides, vh.Overrides)
		}
		for i := range clusters {
			s.special[destination{route, &clusters[i]}] = chains.build(clusters[i].Overrides, route.Overrides, vh.Overrides)
		}
	}
}

func overrides(c xdsresource.WeightedCluster) bool { return len(c.Overrides) > 0 }

// Unary carries out a unary RPC.
func (s *Selector) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts []grpc.CallOption) (err error) {
	rpc := s.ch.NewRPC(ctx, method, opts)
	defer func() { rpc.End(err) }()
	if err = s.begin(&rpc); err != nil {
		grpcbridge.Finish(opts, err)
		return err
	}
	err = outcomes.ErrPanic // unless the RPC returns
	if timeout := s.maxStreamDuration(rpc.Route); timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	if rpc.Plain() {
		return invoker(s.decide(ctx, &rpc), method, req, reply, cc, opts...)
	}
	return s.routes.Unary(ctx, &rpc, req, reply, invoker, opts)
}

// Stream carries out a streaming RPC.
func (s *Selector) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts []grpc.CallOption) (stream grpc.ClientStream, err error) {
	rpc := s.ch.NewRPC(ctx, method, opts)
	if err := s.begin(&rpc); err != nil {
		rpc.End(err)
		grpcbridge.Finish(opts, err)
		return nil, err
	}
	timeout := s.maxStreamDuration(rpc.Route)
	if !rpc.Plain() {
		return s.routes.Stream(&rpc, desc, streamer, opts, timeout)
	}
	// gRPC calls OnFinish also for a stream that it cannot create, but an interceptor below may have refused it, or panicked.
	counted, cancel := func(error) {}, func() {}
	defer func() {
		if err != nil {
			counted(err)
			cancel()
		}
	}()
	err = outcomes.ErrPanic // unless the streamer returns
	if rpc.Counted != (outcomes.RPC{}) {
		counted = rpc.Counted.Once()
		// It comes first, so that nobody hears of the end of an RPC that is in flight.
		opts = append([]grpc.CallOption{grpc.OnFinish(counted)}, opts...)
	}
	if timeout > 0 {
		// It comes last: the application's OnFinish may use the context of the stream, as with gRPC's own timeouts.
		limited, stop := context.WithTimeout(ctx, timeout)
		opts = append(opts[:len(opts):len(opts)], grpc.OnFinish(func(error) { stop() }))
		ctx, cancel = limited, stop
	}
	return streamer(s.decide(ctx, &rpc), desc, cc, method, opts...)
}

// begin routes an RPC of the application, sets its chain of filters, and counts it if RPCs are counted.
func (s *Selector) begin(rpc *router.RPC) error {
	rpc.Trace = rpctrace.FromContext(rpc.Context)
	if s.ch.Observe != nil {
		rpc.Trace = rpctrace.Observed(s.ch.Observe(), rpc.Trace)
	}
	err := s.routes.Route(rpc)
	if err == nil {
		rpc.Chain = cmp.Or(s.special[destination{rpc.Route, rpc.Weighted}], s.base)
	}
	if outcomes.On() {
		rpc.Counted = s.routes.Count(rpc, err)
	}
	return err
}

func (s *Selector) decide(ctx context.Context, rpc *router.RPC) *decision.Decision {
	return &decision.Decision{Context: ctx, Channel: s.ch.ClientConn, Version: s.routes.Version, Method: rpc.Method, Cluster: rpc.Cluster}
}

// maxStreamDuration bounds the duration of the route's RPCs; 0 means no bound (gRFC A31).
func (s *Selector) maxStreamDuration(route *xdsresource.Route) time.Duration {
	if route.MaxStreamDuration != nil {
		return *route.MaxStreamDuration
	}
	return s.listener.MaxStreamDuration
}
