package explain

import (
	"fmt"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// ConnectionsUnknown is said of a process that does not say how its connections are.
const ConnectionsUnknown = "connection state unknown"

// annotate adds to the clusters, which are described by their resources, how they are in the running channel, or in the process
// that was asked. Aggregate clusters come last, as what becomes of their RPCs depends on their members.
func (e *explainer) annotate() {
	states := e.states()
	var aggregates []*Cluster
	for i := range e.out.Clusters {
		c := &e.out.Clusters[i]
		switch state := states[c.Name]; {
		case len(c.Members) > 0:
			aggregates = append(aggregates, c)
		case c.Type == xdsresource.ClusterAggregate.String():
		case state != nil:
			e.live(c, state)
		default:
			e.reported(c)
		}
	}
	for _, c := range aggregates {
		if state := states[c.Name]; state == nil || !c.liveMember(state) {
			e.chooseMember(c)
		}
	}
}

// states returns the clusters as the running channel has them, by name. An aggregate cluster has the state of its members.
func (e *explainer) states() map[string]*inspect.Cluster {
	states := make(map[string]*inspect.Cluster)
	for _, aggregate := range []bool{true, false} {
		for i := range e.out.Clusters {
			c := &e.out.Clusters[i]
			if e.source.Live == nil || (len(c.Members) > 0) != aggregate || states[c.Name] != nil {
				continue
			}
			state, ok := e.source.Live(c.Name)
			if !ok {
				continue
			}
			states[c.Name] = &state
			for j := range state.Members {
				m := &state.Members[j].Cluster
				states[m.Name] = m
			}
		}
	}
	return states
}

// live adds the state of a cluster in the running channel.
func (e *explainer) live(c *Cluster, state *inspect.Cluster) {
	c.setPhase(state)
	if c.Settings == nil { // There is no Cluster.
		return
	}
	if t := state.Traffic; t != nil {
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
			p.Reason += "; " + livestate.Why(state)
			a.Reason = p.Reason
		}
		return
	}
	a.Live, a.InUse, a.Reason = true, -1, livestate.Why(state)
	a.Priorities = describePriorities(state.Priorities, c, a.places())
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

// reported adds what a process says of its connections, or that it does not.
func (e *explainer) reported(c *Cluster) {
	if !e.source.Running || c.Settings == nil {
		return
	}
	c.Connections = ConnectionsUnknown
	var r *livestate.Cluster
	if e.source.Reported != nil {
		r = e.source.Reported(c.Name)
	}
	if r != nil {
		c.Connections, c.RPCs = r.Endpoints.String(), r.RPCs.String()
		c.setPhase(&inspect.Cluster{Name: c.Name, Kind: c.Type, Phase: inspect.Phase(r.Phase), State: inspect.State(r.State), Error: r.Error})
	}
	a := c.Assignment
	if a.InUse < 0 {
		return
	}
	// The health of the resource says where RPCs may go, and not where they arrive.
	p := &a.Priorities[a.InUse]
	p.Reason = fmt.Sprintf("the first with an endpoint that the control plane calls HEALTHY or UNKNOWN; %s", c.Connections)
	a.Reason = p.Reason
	if r == nil {
		return
	}
	bad := make(map[string]*livestate.BadEndpoint, len(r.BadEndpoints))
	for i := range r.BadEndpoints {
		bad[r.BadEndpoints[i].Address] = &r.BadEndpoints[i]
	}
	n := &r.Endpoints
	complete := n.Connecting+n.Idle == 0 && n.Failing+n.Ejected+n.Unhealthy == len(r.BadEndpoints)
	for p, at := range a.Endpoints() {
		switch b := bad[at.Address]; {
		case b != nil:
			at.State, at.LastError, at.Ejected = b.State, b.Error, b.EjectedBy != ""
			if at.Ejected {
				at.EjectedUntil = timeOrNil(b.EjectedUntil)
			}
		case complete && at.Usable && p.InUse:
			at.State = string(inspect.Ready)
		}
	}
}
