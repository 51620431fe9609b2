package aggregate

import (
	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Describe describes an aggregate cluster that has no Policy, because no RPC has needed it yet.
func Describe(name string, c *cluster.Config) inspect.Cluster {
	d := describe(name, c)
	if d.Phase != inspect.PhaseServing {
		return d
	}
	d.Phase = inspect.PhaseDormant
	for _, e := range entries(c.Underlying) {
		d.Members = append(d.Members, inspect.Member{
			Use:     inspect.Use{Status: inspect.StatusNotStarted},
			Cluster: cluster.Describe(e.Name, e.Config),
		})
	}
	return d
}

// describe describes what is configured. The phase is that of a Policy.
func describe(name string, c *cluster.Config) inspect.Cluster {
	d := inspect.Cluster{Name: name, Kind: xdsresource.ClusterAggregate.String(), State: inspect.Idle, Phase: inspect.PhaseServing}
	if c.Notes != nil {
		d.Notes = c.Notes.String()
	}
	switch {
	case c.Err != nil:
		d.Phase, d.Error, d.State = inspect.PhaseFailed, c.Err.Error(), inspect.TransientFailure
	case c.Underlying == nil || len(c.Underlying.Names) == 0:
		d.Phase = inspect.PhaseResolving
	}
	return d
}

// Inspect describes the cluster for diagnostics. It changes nothing.
func (p *Policy) Inspect() inspect.Cluster {
	d := describe(p.name, p.config)
	d.State = inspect.State(p.state.ConnectivityState.String())
	if !p.serving {
		return d
	}
	described := p.clusters.Inspect()
	d.Members = make([]inspect.Member, len(described))
	for i := range described {
		m, entry := &d.Members[i], described[i].Entry
		m.Use = described[i].Use
		if secured, ok := described[i].Policy.(*cluster.Secured); ok {
			m.Cluster = secured.Inspect()
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
