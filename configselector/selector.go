// Package configselector decides, for each RPC, which route it takes and what
// the route gives it, and then carries the RPC out: through the route's HTTP
// filters, with its deadline, to its cluster.
//
// It is not for picking an endpoint (the balancer does, by the Decision made
// here) nor for decoding or watching resources: a Selector is made by the
// resolver from one version of decoded resources, published to the channel's
// interceptors, and never changes.
package configselector

import (
	"context"
	"fmt"
	"math/rand/v2"
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
	// ClientConn is the channel, which marks the Decisions.
	ClientConn *grpc.ClientConn
	// Listener and VirtualHost are what the control plane configured for the
	// channel's target and authority.
	Listener    *xdsresource.Listener
	VirtualHost *xdsresource.VirtualHost
	// RouteConfigName names the RouteConfiguration in errors.
	RouteConfigName string
}

// Selector routes the RPCs of one channel by one version of its
// configuration. It is immutable and safe for concurrent use.
type Selector struct{ c Config }

var _ grpcbridge.Runner = (*Selector)(nil)

// New returns a Selector.
func New(c Config) *Selector { return &Selector{c: c} }

// Version returns the version of the snapshot.
func (s *Selector) Version() uint64 { return s.c.Version }

// Unary carries out a unary RPC.
func (s *Selector) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts []grpc.CallOption) error {
	route, d, err := s.decide(ctx, method)
	if err != nil {
		grpcbridge.Finish(opts, err)
		return err
	}
	if timeout := s.maxStreamDuration(route); timeout > 0 {
		var cancel context.CancelFunc
		d.Context, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return invoker(d, method, req, reply, cc, opts...)
}

// Stream carries out a streaming RPC.
func (s *Selector) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts []grpc.CallOption) (grpc.ClientStream, error) {
	route, d, err := s.decide(ctx, method)
	if err != nil {
		grpcbridge.Finish(opts, err)
		return nil, err
	}
	if timeout := s.maxStreamDuration(route); timeout > 0 {
		var cancel context.CancelFunc
		d.Context, cancel = context.WithTimeout(ctx, timeout)
		// gRPC calls OnFinish for every stream exactly when it ends, however
		// it ends, also if it cannot be created.
		opts = append(opts[:len(opts):len(opts)], grpc.OnFinish(func(error) { cancel() }))
	}
	return streamer(d, desc, cc, method, opts...)
}

// Reselect routes the RPC of a Decision of another version by this one, and
// returns the cluster it goes to now. It is for pickers and takes no lock.
func (s *Selector) Reselect(old *decision.Decision) (cluster string, err error) {
	_, cluster, err = s.route(old.Context, old.Method)
	return cluster, err
}

// decide makes the Decision of an RPC.
func (s *Selector) decide(ctx context.Context, method string) (*xdsresource.Route, *decision.Decision, error) {
	route, cluster, err := s.route(ctx, method)
	if err != nil {
		return nil, nil, err
	}
	return route, &decision.Decision{
		Context: ctx,
		Channel: s.c.ClientConn,
		Version: s.c.Version,
		Method:  method,
		Cluster: cluster,
	}, nil
}

// route finds the first route that matches and draws a cluster from it. The
// error is the status that the RPC ends with.
func (s *Selector) route(ctx context.Context, method string) (*xdsresource.Route, string, error) {
	route := s.c.VirtualHost.Route(xdsresource.RPC{Method: method, Context: ctx})
	if route == nil {
		return nil, "", s.failure(method, "no route matches")
	}
	switch action := route.Action.(type) {
	case *xdsresource.Forward:
		return route, draw(action), nil
	case *xdsresource.Unroutable:
		return nil, "", s.failure(method, action.Reason)
	default:
		return nil, "", s.failure(method, fmt.Sprintf("route %q has an action of unknown type %T", route.Name, action))
	}
}

func (s *Selector) failure(method, reason string) error {
	return status.Errorf(codes.Unavailable, "xds: %s: RPC %s to %q, virtual host %q of RouteConfiguration %q",
		reason, method, s.c.ClientConn.Target(), s.c.VirtualHost.Name, s.c.RouteConfigName)
}

// draw picks one of the clusters by weight. It draws a random number only if
// there is a choice.
func draw(f *xdsresource.Forward) string {
	if len(f.Clusters) == 1 {
		return f.Clusters[0].Name
	}
	n := rand.Uint32N(f.TotalWeight)
	for _, c := range f.Clusters {
		if n < c.Weight {
			return c.Name
		}
		n -= c.Weight
	}
	return f.Clusters[len(f.Clusters)-1].Name
}

// maxStreamDuration is the bound on the duration of the route's RPCs, 0 if
// there is none (gRFC A31).
func (s *Selector) maxStreamDuration(route *xdsresource.Route) time.Duration {
	if route.MaxStreamDuration != nil {
		return *route.MaxStreamDuration
	}
	return s.c.Listener.MaxStreamDuration
}
