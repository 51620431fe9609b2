package aggregate

import (
	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Inspect describes the cluster for diagnostics. It changes nothing.
func (p *Policy) Inspect() inspect.Cluster {
	d := cluster.Configured(p.name, p.config)
	d.Kind = xdsresource.ClusterAggregate.String()
	d.State = inspect.State(p.State().ConnectivityState.String())
	if !serves(p.config) {
		return d
	}
	described := p.clusters.Inspect()
	d.Members = make([]inspect.Member, len(described))
	for i := range described {
		m, entry := &d.Members[i], described[i].Entry
		m.Use = described[i].Use
		if policy, ok := described[i].Policy.(*cluster.Graceful); ok {
			m.Cluster = policy.Inspect()
			m.Use.Error = failure(&m.Cluster)
		} else {
			m.Cluster = cluster.Describe(entry.Name, entry.Config)
		}
	}
	return d
}

// failure returns the last error of a cluster.
func failure(c *inspect.Cluster) string {
	if c.Phase == inspect.PhaseFailed {
		return c.Error
	}
	for i := range c.Priorities {
		if use := &c.Priorities[i].Use; use.InUse {
			return use.Error
		}
	}
	return ""
}
