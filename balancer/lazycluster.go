package balancer

import (
	"context"
	"sync/atomic"

	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// lazyCluster is one cluster's place in the tree. Until an RPC needs the cluster there is only the
// lazyCluster, which counts as IDLE.
type lazyCluster struct {
	root *root
	name string

	// Picks use only picker, which is nil until the cluster is active, asked, which is set by the
	// pick that has the cluster activated, and config, which is set on the loop.
	picker atomic.Pointer[grpcbalancer.Picker]
	asked  atomic.Bool
	config atomic.Pointer[ClusterState]

	// The rest is used on the loop.
	policy       *cluster.Graceful // nil until an RPC has asked for the cluster, and after close
	connectivity connectivity.State
}

// pick picks an endpoint of the cluster for an RPC with the Decision d. The first pick activates the cluster; picks before it
// is active wait.
func (c *lazyCluster) pick(info grpcbalancer.PickInfo, d *decision.Decision) (grpcbalancer.PickResult, error) {
	p := c.picker.Load()
	if d.Extra != nil && p != nil {
		if r := c.config.Load().Cluster; r != nil {
			d.SetMetadata(&r.Metadata)
		}
	}
	return c.pickBy(p, info)
}

// pickBy picks by p, which is or was the picker, for an RPC whose filters have the metadata of the cluster if they need it.
func (c *lazyCluster) pickBy(p *grpcbalancer.Picker, info grpcbalancer.PickInfo) (grpcbalancer.PickResult, error) {
	if p != nil {
		result, err := (*p).Pick(info)
		if err != nil && err != grpcbalancer.ErrNoSubConnAvailable {
			if of, ok := err.(targetError); ok {
				return result, of.error
			}
			err = bounded(err)
			traceFailure(info.Ctx, c.name, decision.FromContext(info.Ctx).Failure(), err)
		}
		return result, err
	}
	c.label(info.Ctx)
	if !c.asked.Load() && c.asked.CompareAndSwap(false, true) {
		c.root.loop.PostFromPick(c.activate)
	}
	return grpcbalancer.PickResult{}, grpcbalancer.ErrNoSubConnAvailable
}

// bounded returns the error of a pick with at most bounds.RPCText of text. gRPC's own policies make some, of
// texts of peers. A status error stays one.
func bounded(err error) error {
	s, isStatus := status.FromError(err)
	switch {
	case !isStatus:
		return bounds.Error(err, bounds.RPCText)
	case len(s.Message()) <= bounds.RPCText:
		return err
	default:
		return status.Error(s.Code(), bounds.Text(s.Message(), bounds.RPCText))
	}
}

// label sets the labels of an RPC that waits for the cluster to become active, as far as they are
// known (gRFC A89). Which of the clusters under an aggregate one serves it is not.
func (c *lazyCluster) label(ctx context.Context) {
	if !grpcbridge.TakesLabels(ctx) {
		return
	}
	if r := c.config.Load().Cluster; r == nil || r.Kind != xdsresource.ClusterAggregate && r.Kind != xdsresource.ClusterPlugin {
		cluster.LabelsOf(c.name, r).Set(ctx, nil)
	}
}

func (c *lazyCluster) activate() {
	if current, _ := c.root.clusters.Get(c.name); c.policy != nil || current != c {
		return // It is active, or no longer in the State.
	}
	c.policy = cluster.NewGraceful(c.root.env, c.name, c.newPlugin, c.publish)
	c.apply()
}

func (c *lazyCluster) update(config *ClusterState) {
	c.config.Store(config)
	if c.policy != nil {
		c.apply()
	}
}

func (c *lazyCluster) apply() {
	c.policy.Update(c.config.Load())
	c.publish()
}

// publish passes the policy's state on to picks and to the channel.
func (c *lazyCluster) publish() {
	s := c.policy.State()
	c.picker.Store(&s.Picker)
	c.root.tally.remove(c.connectivity)
	c.connectivity = s.ConnectivityState
	c.root.tally.add(c.connectivity)
	c.root.tellTarget(c.name)
	c.root.pickerOutdated = true
}

func (c *lazyCluster) exitIdle() {
	if c.policy != nil {
		c.policy.ExitIdle()
	}
}

func (c *lazyCluster) close() {
	if c.policy != nil {
		c.policy.Close()
		c.policy = nil
	}
}
