package balancer

import (
	"sync/atomic"

	grpcbalancer "google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/cluster"
)

// cell is one cluster's place in the tree. While no RPC has asked for the
// cluster, the cell is all there is of it; it counts as IDLE.
type cell struct {
	root *root
	name string

	// picker is nil until the cluster is active. It and asked are all that
	// picks touch.
	picker atomic.Pointer[grpcbalancer.Picker]
	// asked is set by the pick that has the cluster activated.
	asked atomic.Bool

	// The rest is for the loop.
	config       *ClusterState
	phase        cellPhase
	policy       *cluster.Policy // not nil while active
	connectivity connectivity.State
}

type cellPhase int

const (
	dormant cellPhase = iota // no RPC has asked for the cluster
	active                   // it has its policies
	gone                     // it is no longer in the State
)

func newCell(r *root, name string, config *ClusterState) *cell {
	return &cell{root: r, name: name, config: config, connectivity: connectivity.Idle}
}

// pick picks an endpoint of the cluster. The first pick has the cluster
// activated, and waits like any that comes before that is done.
func (c *cell) pick(info grpcbalancer.PickInfo) (grpcbalancer.PickResult, error) {
	if p := c.picker.Load(); p != nil {
		return (*p).Pick(info)
	}
	if !c.asked.Load() && c.asked.CompareAndSwap(false, true) {
		// From a goroutine, as the loop's queue has a lock and a pick takes none.
		go c.root.loop.Post(c.activate)
	}
	return grpcbalancer.PickResult{}, grpcbalancer.ErrNoSubConnAvailable
}

func (c *cell) activate() {
	if c.phase != dormant {
		return
	}
	c.phase = active
	c.policy = cluster.New(c.root.env, c.name, c.publish)
	c.apply()
}

func (c *cell) update(config *ClusterState) {
	c.config = config
	if c.phase == active {
		c.apply()
	}
}

func (c *cell) apply() {
	c.policy.Update(cluster.Config{
		Cluster:   c.config.Cluster,
		Endpoints: c.config.Endpoints,
		Err:       c.config.Err,
	})
	c.publish()
}

// publish makes the policy's state what picks and the channel see.
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
	c.phase = gone
}
