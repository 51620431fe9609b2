package balancer

import (
	"sync/atomic"

	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/aggregate"
	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/balancer/internal/switchover"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// cell is one cluster's place in the tree. Until an RPC needs the cluster there is only the
// cell, which counts as IDLE.
type cell struct {
	root *root
	name string

	// Picks use only picker, which is nil until the cluster is active, and asked, which is set
	// by the pick that has the cluster activated.
	picker atomic.Pointer[grpcbalancer.Picker]
	asked  atomic.Bool

	// The rest is used on the loop.
	config       *ClusterState
	phase        cellPhase
	policy       *policy // not nil while active
	kind         kind
	connectivity connectivity.State
}

// policy serves a cluster of either kind. When the kind changes, the old policy serves until
// the new one can.
type policy = switchover.Policy[*ClusterState, kind]

type kind int

const (
	single     kind = iota // a cluster with endpoints
	aggregated             // one with clusters under it
)

type cellPhase int

const (
	dormant cellPhase = iota // no RPC has asked for the cluster
	active                   // it has its policies
	removed                  // it is no longer in the State
)

func newCell(r *root, name string, config *ClusterState) *cell {
	return &cell{root: r, name: name, config: config, connectivity: connectivity.Idle}
}

// pick picks an endpoint of the cluster. The first pick activates the cluster; picks before it
// is active wait.
func (c *cell) pick(info grpcbalancer.PickInfo) (grpcbalancer.PickResult, error) {
	if p := c.picker.Load(); p != nil {
		result, err := (*p).Pick(info)
		if err != nil {
			traceFailure(info.Ctx, c.name, err)
		}
		return result, err
	}
	if !c.asked.Load() && c.asked.CompareAndSwap(false, true) {
		c.root.loop.PostFromPick(c.activate)
	}
	return grpcbalancer.PickResult{}, grpcbalancer.ErrNoSubConnAvailable
}

func (c *cell) activate() {
	if c.phase != dormant {
		return
	}
	c.phase = active
	c.policy = c.newPolicy()
	c.apply()
}

func (c *cell) newPolicy() *policy {
	return switchover.New(func(*ClusterState) kind { return c.kind }, c.build, c.publish)
}

func (c *cell) build(_ *ClusterState, changed func()) tree.Configured[*ClusterState] {
	if c.kind == aggregated {
		return &aggregateChild{Policy: aggregate.New(c.root.env, c.name, changed)}
	}
	return singleChild{cluster.NewSecured(c.root.env, c.name, changed)}
}

// singleChild and aggregateChild give policies the configuration that they take.
type singleChild struct{ *cluster.Secured }

func (s singleChild) Update(state *ClusterState) { s.Secured.Update(configOf(state)) }

type aggregateChild struct {
	*aggregate.Policy
	last *Underlying
}

// Update costs what has changed, unless the list of clusters is a different one.
func (a *aggregateChild) Update(state *ClusterState) {
	before, now := a.last, state.Underlying
	if state.Err != nil {
		now = nil
	}
	a.last = now
	if before != nil && now != nil && now.sameNames(before) {
		var changed []aggregate.Underlying
		now.States.Diff(before.States, func(name string, _, s *ClusterState, _, _ bool) {
			changed = append(changed, aggregate.Underlying{Name: name, Config: configOf(s)})
		})
		a.Policy.Refresh(changed)
		return
	}
	a.Policy.Update(aggregateConfigOf(state))
}

// aggregateConfigOf returns the configuration for the policy of an aggregate cluster.
func aggregateConfigOf(s *ClusterState) aggregate.Config {
	config := aggregate.Config{Notes: s.Notes, Err: s.Err}
	if u := s.Underlying; u != nil && s.Err == nil {
		for _, name := range u.Names {
			state, _ := u.States.Get(name)
			config.Underlying = append(config.Underlying, aggregate.Underlying{Name: name, Config: configOf(state)})
		}
	}
	return config
}

// configOf returns the configuration for the policy of one cluster.
func configOf(s *ClusterState) cluster.Config {
	return cluster.Config{Cluster: s.Cluster, Endpoints: s.Endpoints, ResolveNow: s.ResolveNow, Notes: s.Notes, Err: s.Err}
}

func (c *cell) update(config *ClusterState) {
	c.config = config
	if c.phase == active {
		c.apply()
	}
}

func (c *cell) apply() {
	if cluster := c.config.Cluster; cluster != nil {
		c.kind = single
		if cluster.Kind == xdsresource.ClusterAggregate {
			c.kind = aggregated
		}
	}
	if c.config.Err != nil {
		// An error ends everything that has served the cluster.
		c.policy.Close()
		c.policy = c.newPolicy()
	}
	c.policy.Update(c.config)
	if c.root.usesXDS && c.policy.Switching() && c.config.secured() {
		// Nothing that serves it without security, or with other security, may go on.
		c.policy.Finish()
	}
	c.publish()
}

// publish passes the policy's state on to picks and to the channel.
func (c *cell) publish() {
	s := c.policy.State()
	c.picker.Store(&s.Picker)
	c.root.tally.remove(c.connectivity)
	c.connectivity = s.ConnectivityState
	c.root.tally.add(c.connectivity)
	c.root.cellChanged()
}

func (c *cell) exitIdle() {
	if c.phase == active {
		c.policy.ExitIdle()
	}
}

func (c *cell) close() {
	if c.phase == active {
		c.policy.Close()
		c.policy = nil
	}
	c.phase = removed
}
