package cluster

import (
	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// counting is how the cluster's RPCs are counted for load reports (LRS). The zero
// value counts nothing.
type counting struct {
	cluster *load.Cluster
	loads   *conns.Loads
}

// update starts to count as c asks, and stops to count as before, if that differs.
func (n *counting) update(c *xdsresource.Cluster) {
	if c.Load == nil || c.Load.Loads == nil {
		n.close()
		return
	}
	old := *n
	n.cluster = c.Load.Loads.Use(load.Key{Cluster: c.Name, Service: c.Load.Service})
	if !n.loads.CountsBy(n.cluster, c.Load.Metrics) {
		n.loads = conns.NewLoads(n.cluster, c.Load.Metrics)
		old.loads.Close()
	}
	old.cluster.Release() // Only now: reports must not stop in between.
}

func (n *counting) close() {
	n.loads.Close()
	n.cluster.Release()
	*n = counting{}
}
