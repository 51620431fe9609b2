package explain

import (
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
)

// liveCluster returns the state of a cluster in the running channel: of one that routes lead to, or
// of a member of an aggregate one that was asked for before.
func (e *explainer) liveCluster(name string) (inspect.Cluster, bool) {
	if c, ok := e.members[name]; ok {
		return c, true
	}
	if e.source.Live == nil {
		return inspect.Cluster{}, false
	}
	c, ok := e.source.Live(name)
	for _, m := range c.Members {
		e.members[m.Cluster.Name] = m.Cluster
	}
	return c, ok
}

// live adds the state of the running channel, if the source knows it.
func (e *explainer) live(c *Cluster, places map[string]string) {
	state, ok := e.liveCluster(c.Name)
	if !ok {
		e.reported(c)
		return
	}
	c.setPhase(&state)
	if t := state.Traffic; t != nil && c.Settings != nil {
		c.Settings.Requests = &t.InFlight
	}
	if state.Switching {
		e.note("cluster %q: what is described serves until the connections for a newer version of the Cluster are ready", c.Name)
	}
	a := c.Assignment
	switch {
	case state.Priorities == nil:
		return
	case state.Phase == inspect.PhaseDormant: // The first RPC goes where the resources say.
		if a.InUse >= 0 {
			p := &a.Priorities[a.InUse]
			p.Reason += "; " + livestate.Why(&state)
			a.Reason = p.Reason
		}
		return
	}
	a.Live, a.InUse, a.Reason = true, -1, livestate.Why(&state)
	a.Priorities = describePriorities(state.Priorities, c, places)
	for i := range a.Priorities {
		if p := &a.Priorities[i]; p.InUse {
			a.InUse, a.Reason = i, p.Reason
			if state.Priorities[i].Switching {
				e.note("cluster %q: its policy has changed, and RPCs go to the endpoints of before until the new policy has a connection", c.Name)
			}
		}
	}
}

// setPhase sets what happens to RPCs. What follows from the resources alone counts only while the balancer
// does not have the cluster.
func (c *Cluster) setPhase(state *inspect.Cluster) {
	if state.Phase == inspect.PhaseDormant {
		return
	}
	c.Unknown = ""
	switch {
	case state.Phase == inspect.PhaseFailed:
		c.Error, c.Waits = livestate.Why(state), ""
	case state.Phase == inspect.PhaseResolving:
		c.Error, c.Waits = "", livestate.Why(state)
	case c.refused != "": // without an endpoint
		c.Error, c.Waits = c.refused, ""
	case state.State == inspect.TransientFailure:
		c.Error, c.Waits = livestate.Why(state), ""
	case state.State == inspect.Connecting:
		c.Error, c.Waits = "", livestate.Why(state)
	default:
		c.Error, c.Waits = "", ""
	}
}

// liveAggregate sets which member of an aggregate cluster is in use. It reports false if the source
// does not know, or if none is yet.
func (e *explainer) liveAggregate(c *Cluster) bool {
	state, ok := e.liveCluster(c.Name)
	if !ok || len(state.Members) == 0 || state.Phase == inspect.PhaseDormant {
		return false
	}
	c.setPhase(&state)
	for i := range state.Members {
		if m := &state.Members[i]; m.Use.InUse {
			c.InUse, c.Reason = m.Cluster.Name, livestate.MemberReasons(state.Members)[i]
		}
	}
	return true
}

func priorityOf(p *inspect.Priority, why string, places map[string]string) Priority {
	d := Priority{Priority: uint32(p.Number), InUse: p.Use.InUse, State: string(p.State), Reason: why}
	for i := range p.Localities {
		l := &p.Localities[i]
		locality := Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone, Weight: l.Weight, State: string(l.State), Endpoints: make([]Endpoint, len(l.Endpoints))}
		for j := range l.Endpoints {
			locality.Endpoints[j] = endpointOf(&l.Endpoints[j], places)
		}
		d.Localities = append(d.Localities, locality)
	}
	return d
}

func endpointOf(e *inspect.Endpoint, places map[string]string) Endpoint {
	d := Endpoint{
		Hostname: e.Hostname, Weight: e.Weight, Health: e.Health, Usable: e.Health == "HEALTHY" || e.Health == "UNKNOWN",
		State: string(e.State), LastError: e.Error, HealthCheck: e.HealthCheck, Ejected: e.Ejection != nil,
	}
	if len(e.Addresses) > 0 {
		d.Address, d.Additional, d.At = e.Addresses[0], e.Addresses[1:], places[e.Addresses[0]]
	}
	if e.Ejection != nil {
		d.EjectedUntil = timeOrNil(e.Ejection.Until)
	}
	return d
}
