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
func Describe(name string, c Config, why string) inspect.Cluster {
	phase := inspect.PhaseDormant
	switch {
	case c.Err != nil:
		phase = inspect.PhaseFailed
	case len(c.Underlying) == 0:
		phase = inspect.PhaseResolving
	}
	d := describe(name, phase, c.Notes, c.Err)
	if phase == inspect.PhaseDormant {
		d.Why = why
	}
	for _, u := range c.Underlying {
		d.Members = append(d.Members, inspect.Member{
			Use:     inspect.Use{Status: inspect.StatusNotStarted, Why: "not started: " + why},
			Cluster: cluster.Describe(u.Name, u.Config, why),
		})
	}
	return d
}

func describe(name string, phase inspect.Phase, notes fmt.Stringer, err error) inspect.Cluster {
	d := inspect.Cluster{Name: name, Kind: xdsresource.ClusterAggregate.String(), State: inspect.Idle, Phase: phase}
	if notes != nil {
		d.Notes = notes.String()
	}
	switch phase {
	case inspect.PhaseFailed:
		d.Why, d.State = err.Error(), inspect.TransientFailure
	case inspect.PhaseResolving:
		d.Why = "RPCs wait for the clusters under it"
	}
	return d
}

// phases are those of a Policy, for diagnostics.
var phases = [...]inspect.Phase{resolving: inspect.PhaseResolving, unusable: inspect.PhaseFailed, serving: inspect.PhaseServing}

// Inspect describes the cluster for diagnostics. It changes nothing.
func (p *Policy) Inspect() inspect.Cluster {
	d := describe(p.name, phases[p.phase], p.notes, p.err)
	d.State = inspect.State(p.state.ConnectivityState.String())
	if p.phase != serving {
		return d
	}
	label := func(_ int, name string) string { return fmt.Sprintf("cluster %q", name) }
	d.Members = make([]inspect.Member, p.clusters.Len())
	described := p.clusters.Inspect(priority.Words[cluster.Config]{
		Label: label,
		Error: func(i int, child tree.Configured[cluster.Config]) string {
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
