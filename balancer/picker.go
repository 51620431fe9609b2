package balancer

import (
	"context"
	"fmt"

	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// errNotRouted is for RPCs that did not pass the interceptors.
var errNotRouted = status.Error(codes.Unavailable, "dynxds: this RPC has no route: "+
	"the dynxds interceptors are not installed on its channel; dial with dynxds.DialOptions")

// picker is the root's picker, which finds the RPC's cluster. It is immutable, but the clusters
// are not.
type picker struct {
	clusters pmap.Map[*lazyCluster]
	version  uint64
	reselect func(*decision.Decision) (string, error)
	// err, if not nil, is why there is no configuration. It is not a status error, as RPCs that
	// wait for ready also wait for a configuration.
	err error
}

// Pick takes no lock and allocates nothing.
func (p *picker) Pick(info grpcbalancer.PickInfo) (grpcbalancer.PickResult, error) {
	d := decision.FromContext(info.Ctx)
	if d == nil {
		return grpcbalancer.PickResult{}, errNotRouted
	}
	if c, ok := p.clusters.Get(d.Cluster); ok {
		return c.pick(info, d)
	}
	if d.Version > p.version {
		// A picker with the cluster will follow.
		return grpcbalancer.PickResult{}, grpcbalancer.ErrNoSubConnAvailable
	}
	if p.err != nil {
		traceFailure(info.Ctx, d.Cluster, rpctrace.NoConfig, p.err)
		return grpcbalancer.PickResult{}, p.err
	}
	return p.pickAgain(info, d)
}

// pickAgain picks for an RPC whose cluster has been removed.
func (p *picker) pickAgain(info grpcbalancer.PickInfo, d *decision.Decision) (grpcbalancer.PickResult, error) {
	name := d.Cluster
	if p.reselect != nil {
		var err error
		if name, err = p.reselect(d); err != nil {
			traceFailure(info.Ctx, d.Cluster, rpctrace.NoCluster, err)
			return grpcbalancer.PickResult{}, err
		}
	}
	if c, ok := p.clusters.Get(name); ok {
		return c.pick(info, d)
	}
	err := fmt.Errorf(
		"dynxds: the RPC's route names cluster %s, which the configuration (version %d) does not have", bounds.Quote(name), p.version)
	traceFailure(info.Ctx, name, rpctrace.NoCluster, err)
	return grpcbalancer.PickResult{}, err
}

// traceFailure reports a pick that has failed to the RPC's trace, if it has one. The pickers of
// clusters report those that succeed.
func traceFailure(ctx context.Context, cluster string, why rpctrace.Reason, err error) {
	if t := decision.FromContext(ctx).Trace(); t != nil {
		t.Picked(rpctrace.Pick{Cluster: cluster, Reason: why, Err: err})
	}
}
