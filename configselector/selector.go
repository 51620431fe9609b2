// Package configselector decides, for each RPC, which route it takes and what
// the route gives it, and then carries the RPC out: through the route's HTTP
// filters, with its deadline, rewrites, header edits, copies and retries, to
// its cluster.
//
// It is not for picking an endpoint (the balancer does, by the Decision made
// here) nor for decoding or watching resources: a Selector is made by the
// resolver from one version of decoded resources, published to the channel's
// interceptors, and never changes. What outlives it is in the Channel.
//
// An RPC whose route only names a cluster, on a channel whose only filter is
// the router, is handed to gRPC at once (selector.go). Others are a call
// (call.go): a chain of interceptors that ends in the router (router.go).
package configselector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/xdsresource"
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
}

// Selector routes the RPCs of one channel by one version of its
// configuration. It is immutable and safe for concurrent use.
type Selector struct {
	c  Config
	ch *Channel

	// base is the chain of routes that override nothing, special has those of
	// the others, one for each of their clusters.
	base    *chain
	special map[*xdsresource.Route][]*chain
	// lease counts RPCs. nil: nobody needs to know.
	lease     *lease
	instances []*instance
	// clusters has the clusters that an RPC can ask for.
	clusters func() map[string]struct{}
}

var _ grpcbridge.Runner = (*Selector)(nil)

// NewSelector returns a Selector. When another one has been published in its
// place it has to be retired.
func (ch *Channel) NewSelector(c Config) *Selector {
	s := &Selector{c: c, ch: ch, instances: ch.use(c.Listener.Filters)}
	s.clusters = sync.OnceValue(s.clusterSet)
	for _, in := range s.instances {
		if in != nil && in.close != nil {
			s.lease = &lease{idle: func() { ch.release(s.instances) }}
			break
		}
	}
	s.buildChains()
	return s
}

func (s *Selector) buildChains() {
	vh := s.c.VirtualHost
	chains := newChains(s.ch, s.c.Listener.Filters, s.instances)
	s.base = chains.build(vh.Overrides)
	if len(s.base.interceptors) == 0 && s.base.err == nil && len(s.c.Listener.Filters) <= 1 {
		return // There is nothing but the router, which nobody overrides.
	}
	for _, route := range vh.Routes {
		clusters := clustersOf(route)
		if !overrides(route, clusters) {
			continue
		}
		if s.special == nil {
			s.special = make(map[*xdsresource.Route][]*chain)
		}
		if len(clusters) == 0 {
			s.special[route] = []*chain{chains.build(route.Overrides, vh.Overrides)}
			continue
		}
		for i := range clusters {
			s.special[route] = append(s.special[route], chains.build(clusters[i].Overrides, route.Overrides, vh.Overrides))
		}
	}
}

// clustersOf returns the clusters of a route, none if it forwards nothing.
func clustersOf(route *xdsresource.Route) []xdsresource.WeightedCluster {
	if f, ok := route.Action.(*xdsresource.Forward); ok {
		return f.Clusters
	}
	return nil
}

func overrides(route *xdsresource.Route, clusters []xdsresource.WeightedCluster) bool {
	for i := range clusters {
		if len(clusters[i].Overrides) > 0 {
			return true
		}
	}
	return len(route.Overrides) > 0
}

func (s *Selector) clusterSet() map[string]struct{} {
	names := s.c.VirtualHost.Clusters()
	set := make(map[string]struct{}, len(names))
	for _, name := range names {
		set[name] = struct{}{}
	}
	return set
}

// has reports whether the configuration has a cluster of that name.
func (s *Selector) has(cluster string) bool {
	_, ok := s.clusters()[cluster]
	return ok
}

// Version returns the version of the snapshot.
func (s *Selector) Version() uint64 { return s.c.Version }

// Retire is called once, when no RPC can be given to the Selector any more
// that would not get ErrRetired: after another Selector or a failure was
// published in its place. Filter instances that no later Selector uses are
// closed when the last RPC has ended.
func (s *Selector) Retire() {
	if s.lease == nil {
		s.ch.release(s.instances)
		return
	}
	s.lease.end()
}

// target is where an RPC goes.
type target struct {
	route *xdsresource.Route
	// weighted is nil if the route forwards nothing.
	weighted *xdsresource.WeightedCluster
	index    int // of weighted among the route's clusters
	cluster  string
}

// Unary carries out a unary RPC.
func (s *Selector) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts []grpc.CallOption) error {
	hold, ok := s.lease.take()
	if !ok {
		return grpcbridge.ErrRetired
	}
	defer hold.release()
	h := s.headers(opts)
	to, err := s.route(ctx, method, &h)
	if err != nil {
		grpcbridge.Finish(opts, err)
		return err
	}
	origin := ctx
	if timeout := s.maxStreamDuration(to.route); timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	chain := s.chainFor(&to)
	if s.plain(chain, &to, &h) {
		return invoker(s.decide(ctx, method, to.cluster), method, req, reply, cc, opts...)
	}
	c := s.newCall(&to, &h, origin, method, nil, opts)
	c.invoker = invoker
	return c.unary(ctx, chain, req, reply)
}

// Stream carries out a streaming RPC.
func (s *Selector) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts []grpc.CallOption) (grpc.ClientStream, error) {
	hold, ok := s.lease.take()
	if !ok {
		return nil, grpcbridge.ErrRetired
	}
	h := s.headers(opts)
	to, err := s.route(ctx, method, &h)
	if err != nil {
		hold.release()
		grpcbridge.Finish(opts, err)
		return nil, err
	}
	timeout := s.maxStreamDuration(to.route)
	chain := s.chainFor(&to)
	if !s.plain(chain, &to, &h) {
		c := s.newCall(&to, &h, ctx, method, desc, opts)
		c.streaming = &streaming{streamer: streamer, hold: hold}
		return c.stream(ctx, chain, timeout)
	}
	if hold.lease != nil {
		opts = append(opts[:len(opts):len(opts)], grpc.OnFinish(func(error) { hold.release() }))
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		// gRPC calls OnFinish for every stream exactly when it ends, however
		// it ends, also if it cannot be created.
		opts = append(opts[:len(opts):len(opts)], grpc.OnFinish(func(error) { cancel() }))
	}
	return streamer(s.decide(ctx, method, to.cluster), desc, cc, method, opts...)
}

// Reselect routes the RPC of a Decision of another version by this one, and
// returns the cluster it goes to now. It is for pickers and takes no lock.
func (s *Selector) Reselect(old *decision.Decision) (cluster string, err error) {
	if old.Extra == nil {
		h := headers{authority: s.ch.Authority}
		to, err := s.route(old.Context, old.Method, &h)
		return to.cluster, err
	}
	override := old.Extra.HostOverride
	if old.Extra.Pinned {
		switch {
		case s.has(old.Cluster):
			return old.Cluster, nil
		case override == nil:
			return "", s.failure(old.Method, fmt.Sprintf("the configuration does not have cluster %q any more", old.Cluster))
		}
		// A session whose endpoint is gone goes on with another one.
	}
	ctx, authority, contentType := old.Extra.RPC.Origin()
	to, err := s.route(ctx, old.Method, &headers{authority: authority, contentType: contentType})
	if err == nil && override != nil {
		override.SetCluster(to.cluster)
	}
	return to.cluster, err
}

// plain reports whether nothing happens to the RPC on its way to gRPC.
func (s *Selector) plain(c *chain, to *target, h *headers) bool {
	r := to.route
	return len(c.interceptors) == 0 && c.err == nil && !h.special &&
		to.weighted != nil && to.weighted.Headers == nil && to.weighted.Authority == "" && to.weighted.Header == "" &&
		r.Headers == nil && r.Rewrite == nil && r.Retry == nil && len(r.Mirrors) == 0 && len(r.HashPolicies) == 0
}

func (s *Selector) chainFor(to *target) *chain {
	if len(s.special) > 0 {
		if c, ok := s.special[to.route]; ok {
			return c[to.index]
		}
	}
	return s.base
}

func (s *Selector) decide(ctx context.Context, method, cluster string) *decision.Decision {
	return &decision.Decision{
		Context: ctx,
		Channel: s.ch.ClientConn,
		Version: s.c.Version,
		Method:  method,
		Cluster: cluster,
	}
}

// matchable returns the RPC as routes look at it.
func (s *Selector) matchable(ctx context.Context, method string, h *headers) xdsresource.RPC {
	rpc := xdsresource.RPC{Method: method, Authority: h.authority, ContentType: h.contentType, Context: ctx}
	if s.ch.Secure {
		rpc.Scheme = "https"
	}
	return rpc
}

// route finds the first route that matches and draws a cluster from it. The
// error is the status that the RPC ends with.
func (s *Selector) route(ctx context.Context, method string, h *headers) (target, error) {
	rpc := s.matchable(ctx, method, h)
	route := s.c.VirtualHost.Route(rpc)
	if route == nil {
		return target{}, s.failure(method, "no route matches")
	}
	switch action := route.Action.(type) {
	case *xdsresource.Forward:
		return s.forward(&rpc, route, action)
	case *xdsresource.DirectResponse, *xdsresource.Redirect:
		return target{route: route}, nil
	case *xdsresource.Unroutable:
		return target{}, s.failure(method, action.Reason)
	default:
		return target{}, s.failure(method, fmt.Sprintf("route %q has an action of unknown type %T", route.Name, action))
	}
}

func (s *Selector) forward(rpc *xdsresource.RPC, route *xdsresource.Route, f *xdsresource.Forward) (target, error) {
	i := draw(f)
	to := target{route: route, weighted: &f.Clusters[i], index: i, cluster: f.Clusters[i].Name}
	if to.weighted.Header == "" {
		return to, nil
	}
	switch to.cluster = to.weighted.Cluster(rpc); {
	case to.cluster == "":
		return target{}, s.failure(rpc.Method, fmt.Sprintf("the RPC does not have the header %q, which is to name its cluster", to.weighted.Header))
	case !s.has(to.cluster):
		return target{}, s.failure(rpc.Method, fmt.Sprintf("header %q names cluster %q, which no route of the virtual host mentions", to.weighted.Header, to.cluster))
	}
	return to, nil
}

func (s *Selector) failure(method, reason string) error {
	return status.Errorf(codes.Unavailable, "xds: %s: RPC %s to %q, virtual host %q of RouteConfiguration %q",
		reason, method, s.ch.target(), s.c.VirtualHost.Name, s.c.RouteConfigName)
}

// draw picks one of the clusters by weight. It draws a random number only if
// there is a choice.
func draw(f *xdsresource.Forward) int {
	if len(f.Clusters) == 1 {
		return 0
	}
	n := rand.Uint32N(f.TotalWeight)
	for i := range f.Clusters {
		if n < f.Clusters[i].Weight {
			return i
		}
		n -= f.Clusters[i].Weight
	}
	return len(f.Clusters) - 1
}

// maxStreamDuration is the bound on the duration of the route's RPCs, 0 if
// there is none (gRFC A31).
func (s *Selector) maxStreamDuration(route *xdsresource.Route) time.Duration {
	if route.MaxStreamDuration != nil {
		return *route.MaxStreamDuration
	}
	return s.c.Listener.MaxStreamDuration
}
