package router

import (
	"sync"

	"github.com/dynxds/dynxds/internal/outcomes"
)

// counters has the Counters of the RPCs of one version of the routes, from the first RPC of each on, by the *xdsresource.Route, which is
// nil for RPCs without one. If routes have several clusters, or headers name them, each cluster has counters of its own.
type counters struct{ byRoute sync.Map }

// Count counts an RPC that has been routed, or that fails with err because it cannot be.
func (r *Routes) Count(rpc *RPC, err error) outcomes.RPC {
	counters, cluster := &r.counters, ""
	if err == nil && rpc.Weighted != nil { // Otherwise the cluster may be whatever a header says.
		if cluster = rpc.Cluster; rpc.Weighted.Header != "" || len(ClustersOf(rpc.Route)) > 1 {
			counters = r.clusters()[cluster]
		}
	}
	if known, ok := counters.byRoute.Load(rpc.Route); ok {
		if c := known.(*outcomes.Counter); !c.Gone() {
			return c.Begin()
		}
	}
	k := outcomes.Key{Target: r.Channel.Target(), Cluster: cluster}
	if rpc.Route != nil {
		k.Route = outcomes.RouteLabel(rpc.Route.Name, rpc.Route.Match.Paths())
	}
	c := outcomes.Find(k)
	counters.byRoute.Store(rpc.Route, c)
	return c.Begin()
}
