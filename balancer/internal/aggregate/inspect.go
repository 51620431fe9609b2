package aggregate

import (
	"fmt"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/balancer/internal/priority"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Describe describes an aggregate cluster that has no Policy, because nothing has needed it yet for
// the given reason.
func Describe(name string, c *cluster.Config, why string) inspect.Cluster {
	d := describe(name, c)
	if d.Phase != inspect.PhaseServing {
		return d
	}
	d.Phase, d.Why = inspect.PhaseDormant, why
	for _, e := range entries(c.Underlying) {
		d.Members = append(d.Members, inspect.Member{
			Use:     inspect.Use{Status: inspect.StatusNotStarted, Why: "not started: " + why},
			Cluster: cluster.Describe(e.Name, e.Config, why),
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
		d.Phase, d.Why, d.State = inspect.PhaseFailed, c.Err.Error(), inspect.TransientFailure
	case c.Underlying == nil || len(c.Underlying.Names) == 0:
		d.Phase, d.Why = inspect.PhaseResolving, "RPCs wait for the clusters under it"
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
	label := func(_ int, name string) string { return fmt.Sprintf("cluster %q", name) }
	d.Members = make([]inspect.Member, len(p.config.Underlying.Names))
	described := p.clusters.Inspect(priority.Words[*cluster.Config]{
		Label: label,
		Error: func(i int, child tree.Configured[*cluster.Config]) string {
			d.Members[i].Cluster = child.(*cluster.Secured).Inspect()
			return failure(&d.Members[i].Cluster)
		},
	})
	for i := range described {
		m, entry := &d.Members[i], described[i].Entry
		m.Use = described[i].Use
		if described[i].Policy == nil {
			m.Cluster = cluster.Describe(entry.Name, entry.Config, m.Use.Why)
		}
		if m.Use.InUse {
			d.Why = fmt.Sprintf("%s is in use: %s", label(i, entry.Name), m.Use.Why)
		}
	}
	return d
}

// failure returns the last error of a cluster.
func failure(c *inspect.Cluster) string {
	if c.Phase == inspect.PhaseFailed {
		return c.Why
	}
	for i := range c.Priorities {
		if use := &c.Priorities[i].Use; use.InUse {
			return use.Error
		}
	}
	return ""
}
