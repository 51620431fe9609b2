package router

import (
	"sync"

	"github.com/dynxds/dynxds/internal/outcomes"
)

// counters has the Counters of the RPCs of one version of the routes, from the first RPC of each on: by the
// *xdsresource.Route, which is nil for RPCs without one, a map by the *xdsresource.WeightedCluster, nil for RPCs without one.
// Routes share what they forward to. Each cluster that headers may name has counters of its own.
type counters struct{ byRoute sync.Map }

// Count counts an RPC that has been routed, or that fails with err because it cannot be.
func (r *Routes) Count(rpc *RPC, err error) outcomes.RPC {
	counters, weighted, cluster := &r.counters, rpc.Weighted, rpc.Cluster
	switch {
	case weighted == nil, err != nil: // The cluster may be whatever a header says.
		weighted, cluster = nil, ""
	case weighted.Header != "":
		counters = r.clusters()[cluster]
	}
	ofRoute, ok := counters.byRoute.Load(rpc.Route)
	if !ok {
		ofRoute, _ = counters.byRoute.LoadOrStore(rpc.Route, new(sync.Map))
	}
	byCluster := ofRoute.(*sync.Map)
	if known, ok := byCluster.Load(weighted); ok {
		if c := known.(*outcomes.Counter); !c.Gone() {
			return c.Begin()
		}
	}
	k := outcomes.Key{Target: r.Channel.Target(), Cluster: cluster}
	if rpc.Route != nil {
		k.Route = outcomes.RouteLabel(rpc.Route.Name, rpc.Route.Match.Paths())
	}
	c := outcomes.Find(k)
	byCluster.Store(weighted, c)
	return c.Begin()
}
