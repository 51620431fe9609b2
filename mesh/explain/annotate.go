package explain

import (
	"fmt"
	"slices"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// ConnectionsUnknown is said of a process that does not say how its connections are.
const ConnectionsUnknown = "connection state unknown"

// annotate adds to the clusters, which are described by their resources, how they are in the process, if it says that: as its channel has
// them, or in its words if another process was asked. Aggregate clusters come last, as what becomes of their RPCs depends on their members.
func (e *explainer) annotate() {
	said := make(map[string]*livestate.Cluster) // by name
	if e.source.State != nil {
		for _, c := range e.source.State.Clusters {
			if SameTarget(c.Target, e.request.Target) {
				said[c.Name] = c
			}
		}
	}
	// Those that a channel of this process has. A member of an aggregate cluster is as it is there, if RPCs go to that.
	states := make(map[string]*inspect.Cluster)
	for _, c := range e.out.Clusters {
		s := said[c.Name]
		if s == nil || s.Live == nil || states[c.Name] != nil {
			continue
		}
		states[c.Name] = s.Live
		for i := range s.Live.Members {
			m := &s.Live.Members[i].Cluster
			states[m.Name] = m
		}
	}
	var aggregates []*Cluster
	for _, c := range e.out.Clusters {
		switch state := states[c.Name]; {
		case len(c.Members) > 0:
			aggregates = append(aggregates, c)
		case c.Type == xdsresource.ClusterAggregate.String(), c.Type == xdsresource.ClusterPlugin.String():
		case state != nil:
			e.live(c, state)
		case e.source.Running:
			c.reported(said[c.Name])
		}
		if r := said[c.Name]; r != nil {
			c.RPCs = livestate.RPCs(r.RPCs)
		}
	}
	for _, c := range aggregates {
		if state := states[c.Name]; state == nil || !c.liveMember(state) {
			e.chooseMember(c)
		}
	}
}

// live adds the state of a cluster in the running channel.
func (e *explainer) live(c *Cluster, state *inspect.Cluster) {
	c.setPhase(state)
	if c.Settings == nil { // There is no Cluster.
		return
	}
	if t := state.Traffic; t != nil {
		i := slices.IndexFunc(c.Settings, func(s Setting) bool { return s.Name == "limit" })
		c.Settings[i].Value += fmt.Sprintf(", now %d", t.InFlight)
	}
	if state.Switching {
		e.note("cluster %q: what is described serves until the connections for a newer version of the Cluster are ready", c.Name)
	}
	a := c.Assignment
	switch {
	case state.Priorities == nil:
		return
	case state.Phase == inspect.PhaseDormant, state.Unserved: // The first RPC goes where the resources say.
		if p := a.InUse(); p != nil {
			p.Reason += "; " + livestate.Why(state)
		}
		return
	}
	a.Live, a.Priorities = true, describePriorities(state.Priorities, c.byEndpoints)
	if p := a.InUse(); p != nil && p.Switching {
		e.note("cluster %q: its policy has changed, and RPCs go to the endpoints of before until the new policy has a connection", c.Name)
	}
}

// setPhase sets what happens to RPCs. What follows from the resources alone counts only while the balancer
// does not have the cluster.
func (c *Cluster) setPhase(state *inspect.Cluster) {
	if state.Phase == inspect.PhaseDormant {
		return
	}
	c.Fate = Fate{}
	switch {
	case state.Phase == inspect.PhaseFailed:
		c.Error = livestate.Why(state)
	case state.Phase == inspect.PhaseResolving:
		c.Waits = livestate.Why(state)
	case c.refused != "": // without an endpoint
		c.Error = c.refused
	case state.State == inspect.TransientFailure:
		c.Error = livestate.Why(state)
	case state.State == inspect.Connecting:
		c.Waits = livestate.Why(state)
	}
}

// liveMember sets which member of an aggregate cluster is in use. It reports false if none is yet.
func (c *Cluster) liveMember(state *inspect.Cluster) bool {
	if len(state.Members) == 0 || state.Phase == inspect.PhaseDormant {
		return false
	}
	c.setPhase(state)
	for i := range state.Members {
		if m := &state.Members[i]; m.Use.InUse {
			c.InUse, c.Reason = m.Cluster.Name, livestate.MemberReasons(state.Members)[i]
		}
	}
	return true
}

// reported adds what a process says of its connections, or that it does not. r is nil if it does not say.
func (c *Cluster) reported(r *livestate.Cluster) {
	if c.Settings == nil {
		return
	}
	c.Connections = ConnectionsUnknown
	if r != nil {
		c.Connections = r.Endpoints.String()
		c.setPhase(&inspect.Cluster{Name: c.Name, Kind: c.Type, Phase: inspect.Phase(r.Phase), State: inspect.State(r.State), Error: r.Error})
	}
	inUse := c.Assignment.InUse()
	if inUse == nil {
		return
	}
	// The health of the resource says where RPCs may go, and not where they arrive.
	inUse.Reason = fmt.Sprintf("the first with an endpoint that the control plane calls HEALTHY or UNKNOWN; %s", c.Connections)
	if r == nil {
		return
	}
	bad := make(map[string]*livestate.BadEndpoint, len(r.BadEndpoints))
	for i := range r.BadEndpoints {
		bad[r.BadEndpoints[i].Address] = &r.BadEndpoints[i]
	}
	n := &r.Endpoints
	complete := n.Connecting+n.Idle == 0 && n.Failing+n.Ejected+n.Unhealthy == len(r.BadEndpoints)
	for i := range c.Assignment.Priorities {
		p := &c.Assignment.Priorities[i]
		for at := range livestate.EndpointsOf(&p.Priority) {
			switch b := bad[at.Addresses[0]]; {
			case b != nil:
				at.State, at.Error = inspect.State(b.State), b.Error
				if b.EjectedBy != "" {
					at.Ejection = &inspect.Ejection{Method: b.EjectedBy, Until: b.EjectedUntil}
				}
			case complete && at.Usable() && p == inUse:
				at.State = inspect.Ready
			}
		}
	}
}
