// Package router finds the route of an RPC, and carries the RPC out: through the route's HTTP filters
// to the router, the last of them, with its rewrites, header edits, mirrors and retries,
// and on to gRPC.
//
// It does not match routes itself, which package matching does, nor choose the endpoint. RPCs
// share a Channel and the Routes of one version. To follow an RPC, read call.go (the RPC and its filters), request.go (what the
// last filter passes on), attempt.go, and, of RPCs that may be sent again, replay.go and replaystream.go.
package router

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/filterchain"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/outcomes"
	"github.com/dynxds/dynxds/internal/rpctrace"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// A Channel has the state that the RPCs of one channel share while its resolver lives. It is safe for
// concurrent use.
type Channel struct {
	ClientConn *grpc.ClientConn
	Authority  string // the ":authority" of RPCs that set no other
	Secure     bool   // the channel's credentials check the authority
	Metrics    estats.MetricsRecorder

	id          uint64       // the channel in hashes (gRFC A42)
	maxAttempts int          // bounds every retry policy
	mirrors     atomic.Int64 // in flight
}

// NewChannel returns the Channel of cc. metrics may be nil.
func NewChannel(cc *grpc.ClientConn, authority string, secure bool, metrics estats.MetricsRecorder) *Channel {
	return &Channel{
		ClientConn: cc, Authority: authority, Secure: secure, Metrics: metrics,
		id: rand.Uint64(), maxAttempts: grpcbridge.MaxAttempts(cc),
	}
}

// Target returns the target that was dialled.
func (ch *Channel) Target() string { return ch.ClientConn.Target() }

// Routes are one version of the routes of a channel. They are immutable.
type Routes struct {
	Channel         *Channel
	Version         uint64 // of the snapshot
	VirtualHost     *xdsresource.VirtualHost
	RouteConfigName string // for errors

	// counters has the Counters of the RPCs of this version, from the first RPC of each on, by the *xdsresource.Route, which is nil for RPCs
	// without one. If routes have several clusters, or headers name them, each cluster has counters of its own.
	counters sync.Map
	clusters func() map[string]*sync.Map // these counters, by the name of each cluster of the virtual host
}

// NewRoutes returns the Routes of a version.
func NewRoutes(ch *Channel, version uint64, host *xdsresource.VirtualHost, routeConfigName string) *Routes {
	return &Routes{
		Channel: ch, Version: version, VirtualHost: host, RouteConfigName: routeConfigName,
		clusters: sync.OnceValue(func() map[string]*sync.Map {
			set := make(map[string]*sync.Map)
			for name := range host.Clusters {
				set[name] = new(sync.Map)
			}
			return set
		}),
	}
}

// has reports whether a route of the virtual host mentions a cluster.
func (r *Routes) has(cluster string) bool {
	_, ok := r.clusters()[cluster]
	return ok
}

// failure returns the status of an RPC that fails for a reason in the routes. Names in the reason are those of
// bounds.Quote.
func (r *Routes) failure(method, reason string) error {
	return status.Errorf(codes.Unavailable, "xds: %s: RPC %s to %s, virtual host %s of RouteConfiguration %s", reason,
		bounds.Text(method, bounds.ErrorText), bounds.Quote(r.Channel.Target()), bounds.Quote(r.VirtualHost.Name), bounds.Quote(r.RouteConfigName))
}

// ClustersOf returns the clusters of a route, none if it forwards nothing.
func ClustersOf(route *xdsresource.Route) []xdsresource.WeightedCluster {
	if f, ok := route.Action.(*xdsresource.Forward); ok {
		return f.Clusters
	}
	return nil
}

// Route finds the first route that matches an RPC, and draws a cluster from it. The error is the status that the RPC
// ends with.
func (r *Routes) Route(rpc *RPC) (err error) {
	if route := r.VirtualHost.Route(rpc.RPC); route == nil {
		err = r.failure(rpc.Method, "no route matches")
	} else {
		err = r.take(rpc, route)
	}
	if rpc.Trace == nil {
		return err
	}
	at := rpctrace.Route{
		Method: rpc.Method, RouteConfig: r.RouteConfigName, VirtualHost: r.VirtualHost.Name,
		Cluster: rpc.Cluster, Err: err,
	}
	if rpc.Route != nil {
		at.Name, at.Match = rpc.Route.Name, rpc.Route.Match.Paths()
	}
	rpc.Trace.Routed(at)
	return err
}

// take sets where rpc goes by a route, and chooses one of the route's clusters.
func (r *Routes) take(rpc *RPC, route *xdsresource.Route) error {
	switch action := route.Action.(type) {
	case *xdsresource.Forward:
		return r.forward(rpc, route, action)
	case *xdsresource.DirectResponse, *xdsresource.Redirect:
		rpc.Route = route
	case *xdsresource.Unroutable:
		return r.failure(rpc.Method, action.Reason)
	}
	return nil
}

// Reselect routes the RPC of a Decision of another version again, and returns the new cluster.
func (r *Routes) Reselect(old *decision.Decision) (cluster string, err error) {
	rpc := r.Channel.NewRPC(old.Context, old.Method, nil)
	var override *httpfilter.HostOverride
	if extra := old.Extra; extra != nil {
		override = extra.HostOverride
		if extra.Pinned {
			switch {
			case r.has(old.Cluster):
				return old.Cluster, nil
			case override == nil:
				return "", r.failure(old.Method, fmt.Sprintf("the configuration no longer has cluster %s", bounds.Quote(old.Cluster)))
			}
			// A session whose endpoint was removed continues on another endpoint.
		}
		rpc.Context, rpc.Authority, rpc.ContentType = extra.RPC.Origin()
		rpc.Trace = extra.Trace
	}
	if err := r.Route(&rpc); err != nil {
		return "", err
	}
	if rpc.Weighted == nil {
		_, err := answer(rpc.Route, &rpc.RPC)
		return "", err
	}
	if override != nil {
		override.SetCluster(rpc.Cluster)
	}
	return rpc.Cluster, nil
}

func (r *Routes) forward(rpc *RPC, route *xdsresource.Route, f *xdsresource.Forward) error {
	rpc.Route, rpc.Weighted = route, &f.Clusters[f.Draw()]
	if n := len(rpc.Authority); rpc.chosen && n > bounds.Authority {
		return r.failure(rpc.Method, fmt.Sprintf("grpc.CallAuthority of %d bytes, more than %d", n, bounds.Authority))
	}
	if rpc.Cluster = rpc.Weighted.Name; rpc.Weighted.Header == "" {
		return nil
	}
	switch rpc.Cluster = rpc.Weighted.Cluster(&rpc.RPC); {
	case rpc.Cluster == "":
		return r.failure(rpc.Method, fmt.Sprintf("the RPC does not have the header %s, which names the cluster", bounds.Quote(rpc.Weighted.Header)))
	case !r.has(rpc.Cluster):
		return r.failure(rpc.Method, fmt.Sprintf("header %s names cluster %s, which no route of the virtual host mentions",
			bounds.Quote(rpc.Weighted.Header), bounds.Quote(rpc.Cluster)))
	}
	return nil
}

// An RPC is a request of the application and, once it is routed, its destination.
type RPC struct {
	matching.RPC      // as the application makes it, which is what it is routed by
	chosen       bool // the application has chosen the authority

	Trace   *rpctrace.Trace // nil: the RPC is not traced
	Counted outcomes.RPC    // the zero value: it is not counted

	// Routes.Route sets these.
	Route    *xdsresource.Route
	Weighted *xdsresource.WeightedCluster // nil if the route forwards nothing
	Cluster  string

	Chain *filterchain.Chain
}

// End is called once, when the RPC has ended, unless it is a plain stream: whoever counts RPCs is told.
func (rpc *RPC) End(err error) {
	rpc.Counted.End(err)
	rpctrace.Ended(rpc.Trace, err)
}

// Plain reports whether nothing happens to the RPC on its way to gRPC. Nothing would report a
// plain RPC to its trace.
func (rpc *RPC) Plain() bool {
	r, w, c := rpc.Route, rpc.Weighted, rpc.Chain
	return rpc.Trace == nil && c.Passes() && !rpc.chosen && rpc.ContentType == "" &&
		w != nil && w.Headers == nil && w.Authority == "" && w.Header == "" &&
		r.Headers == nil && r.Rewrite == nil && r.Retry == nil && len(r.Mirrors) == 0 && len(r.HashPolicies) == 0
}

// Count counts an RPC that has been routed, or that fails with err because it cannot be.
func (r *Routes) Count(rpc *RPC, err error) outcomes.RPC {
	counters, cluster := &r.counters, ""
	if err == nil && rpc.Weighted != nil { // Otherwise the cluster may be whatever a header says.
		if cluster = rpc.Cluster; rpc.Weighted.Header != "" || len(ClustersOf(rpc.Route)) > 1 {
			counters = r.clusters()[cluster]
		}
	}
	if known, ok := counters.Load(rpc.Route); ok {
		if c := known.(*outcomes.Counter); !c.Gone() {
			return c.Begin()
		}
	}
	k := outcomes.Key{Target: r.Channel.Target(), Cluster: cluster}
	if rpc.Route != nil {
		k.Route = outcomes.RouteLabel(rpc.Route.Name, rpc.Route.Match.Paths())
	}
	c := outcomes.Find(k)
	counters.Store(rpc.Route, c)
	return c.Begin()
}
