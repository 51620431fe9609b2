package router

import (
	"sync"

	"github.com/dynxds/dynxds/internal/outcomes"
)

// counters has the Counters of the RPCs of one version of the routes, from the first RPC of each on: by the
// *xdsresource.WeightedCluster, or else by the *xdsresource.Route, which is nil for RPCs without one. Each cluster that headers
// may name has counters of its own.
type counters struct{ byRoute sync.Map }

// Count counts an RPC that has been routed, or that fails with err because it cannot be.
func (r *Routes) Count(rpc *RPC, err error) outcomes.RPC {
	counters, cluster := &r.counters, rpc.Cluster
	key := rpc.Destination()
	switch w := rpc.Weighted; {
	case w == nil, err != nil: // The cluster may be whatever a header says.
		key, cluster = rpc.Route, ""
	case w.Header != "":
		counters = r.clusters()[cluster]
	}
	if known, ok := counters.byRoute.Load(key); ok {
		if c := known.(*outcomes.Counter); !c.Gone() {
			return c.Begin()
		}
	}
	k := outcomes.Key{Target: r.Channel.Target(), Cluster: cluster}
	if rpc.Route != nil {
		k.Route = outcomes.RouteLabel(rpc.Route.Name, rpc.Route.Match.Paths())
	}
	c := outcomes.Find(k)
	counters.byRoute.Store(key, c)
	return c.Begin()
}
