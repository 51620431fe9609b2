package cluster

import (
	"github.com/dynxds/dynxds/balancer/internal/loads"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// counting is how the cluster's RPCs are counted for load reports (LRS). The zero
// value counts nothing.
type counting struct {
	store    *load.Store
	key      load.Key
	cluster  *load.Cluster
	registry *loads.Registry
}

// update takes over what is known of the cluster. It changes to other counts only
// if the report is another one.
func (n *counting) update(c *xdsresource.Cluster, e *xdsresource.Endpoints) {
	if c.Load == nil || c.Load.Loads == nil {
		n.close()
		return
	}
	before := *n
	n.store, n.key = c.Load.Loads, load.Key{Cluster: c.Name, Service: c.Load.Service}
	same := n.store == before.store && n.key == before.key
	if !same {
		n.cluster = n.store.Use(n.key)
	}
	if !n.registry.Fits(n.cluster, c.Load.Metrics) {
		n.registry = loads.New(n.cluster, c.Load.Metrics)
		before.registry.Close()
	}
	if !same {
		// Only now, so that reporting does not end in between.
		before.cluster.Release()
	}
	n.registry.Update(e.Localities)
}

func (n *counting) close() {
	n.registry.Close()
	n.cluster.Release()
	*n = counting{}
}
