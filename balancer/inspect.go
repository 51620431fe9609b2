package balancer

import (
	"context"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/internal/inspect"
)

// inspect describes a cluster, for diagnostics.
func (r *root) inspect(ctx context.Context, name string) (inspect.Cluster, bool) {
	var d inspect.Cluster
	known := false
	asked := r.loop.Ask(ctx, func() {
		if c, ok := r.clusters.Get(name); ok {
			d, known = c.inspect(), true
		}
	})
	if !asked {
		return inspect.Cluster{}, false
	}
	return d, known
}

// Describe describes a cluster without connections, for diagnostics: no RPC has needed it yet, or the policy does not have it.
func Describe(name string, c *ClusterState) inspect.Cluster { return cluster.Describe(name, c) }

func (c *lazyCluster) inspect() inspect.Cluster {
	if c.policy == nil {
		return cluster.Describe(c.name, c.config.Load())
	}
	return c.policy.Inspect()
}
