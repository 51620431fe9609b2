package explain

import (
	"cmp"
	"fmt"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// describeEndpoints describes where the RPCs of a cluster that is not an aggregate one can go, by its resources.
func (e *explainer) describeEndpoints(c *Cluster, raw *clusterpb.Cluster) {
	c.Assignment = &ClusterAssignment{At: livestate.EndpointPlaces(raw.GetLoadAssignment())}
	endpoints := c.value.Inline
	if c.value.Kind == xdsresource.ClusterEDS {
		var raw *endpointpb.ClusterLoadAssignment
		c.Assignment.Resource, endpoints, raw, c.Fate = find[*xdsresource.Endpoints, *endpointpb.ClusterLoadAssignment](e, typeurl.Endpoints, c.value.EDSServiceName)
		if endpoints == nil {
			return
		}
		if !e.affordEndpoints(endpoints, raw) {
			c.Unknown = "its endpoints are left out"
			return
		}
		c.Assignment.At = livestate.EndpointPlaces(raw)
	}
	for _, d := range endpoints.Drops {
		c.Assignment.Drops = append(c.Assignment.Drops, Drop{Category: d.Category, Percent: percent(100 * float64(d.PerMillion) / xdsresource.Million)})
		if d.PerMillion >= xdsresource.Million && c.Refused == "" {
			c.Refused = fmt.Sprintf("all RPCs are dropped (drop_overloads, category %q)", d.Category)
		}
	}
	none := c.configured(endpoints)
	if c.Refused == "" && none == "" && c.value.MaxRequests == 0 {
		c.Refused = "circuit_breakers.max_requests is 0"
	}
	c.Error = cmp.Or(c.Refused, none)
}

// endpointDetails is about what an endpoint needs in an explanation. Many clusters may have the same ones.
const endpointDetails = 100

// affordEndpoints reports whether endpoints can be added.
func (e *explainer) affordEndpoints(endpoints *xdsresource.Endpoints, raw proto.Message) bool {
	details := 0
	for i := range endpoints.Localities {
		details += endpointDetails * (1 + len(endpoints.Localities[i].Endpoints))
	}
	return !e.full && e.afford(details+proto.Size(raw)/10)
}

// configured sets the priorities as the resources have them, without the states that a channel adds. In use is the first one with an
// endpoint that may get RPCs; none says why there is none.
func (c *Cluster) configured(endpoints *xdsresource.Endpoints) (none string) {
	a, inUse := c.Assignment, -1
	a.Priorities = c.priorities(balancer.Describe("", &balancer.ClusterState{Cluster: c.value, Endpoints: endpoints}).Priorities)
	condition := cmp.Or(c.wouldBe(), "is ") + "HEALTHY or UNKNOWN"
	for i := range a.Priorities {
		p, all, usable := &a.Priorities[i], 0, 0
		p.Use, p.State = inspect.Use{}, ""
		for j := range p.Localities {
			l := &p.Localities[j]
			l.State = ""
			for k := range l.Endpoints {
				l.Endpoints[k].State = ""
			}
			all, usable = all+len(l.Endpoints), usable+usableOf(l)
		}
		switch {
		case usable == 0:
			p.Reason = "no endpoint of it " + condition
		case inUse >= 0:
			p.Reason = fmt.Sprintf("priority %d is preferred", inUse)
		default:
			inUse, p.Use.InUse = p.Number, true
			p.Reason = fmt.Sprintf("the first with an endpoint that %s: %d of %d", condition, usable, all)
			if c.value.Kind.DNS() {
				p.Reason = "DNS resolves its names, to addresses that only the process knows"
			}
		}
	}
	switch {
	case inUse >= 0:
		return ""
	case len(a.Priorities) == 0:
		return "there are no endpoints"
	default:
		return "no endpoint " + condition
	}
}

// priorities adds to priorities why they are in use or not, and the shares of localities: by their weights, or, if a policy picks
// among the endpoints of all localities and does not look at weights, by their usable endpoints. Those without a usable endpoint have none.
func (c *Cluster) priorities(all []inspect.Priority) (list []Priority) {
	byEndpoints := c.value.AcrossLocalities && c.value.LBPolicy != xdsresource.PolicyRingHash && c.value.LBPolicy != xdsresource.PolicyMaglev
	for i, why := range livestate.Reasons(&inspect.Cluster{Priorities: all}) {
		p := Priority{Priority: all[i], Reason: why, Percents: make([]float64, len(all[i].Localities))}
		total := 0.0
		for j := range p.Localities {
			l := &p.Localities[j]
			p.Percents[j] = float64(usableOf(l))
			if p.Percents[j] > 0 && !byEndpoints {
				p.Percents[j] = float64(l.Weight)
			}
			total += p.Percents[j]
		}
		for j := range p.Percents {
			p.Percents[j] = percent(100 * p.Percents[j] / max(total, 1))
		}
		list = append(list, p)
	}
	return list
}

// usableOf returns the number of endpoints of a locality that may get RPCs.
func usableOf(l *inspect.Locality) (n int) {
	for i := range l.Endpoints {
		if l.Endpoints[i].Usable() {
			n++
		}
	}
	return n
}

// live adds how a cluster is in the running channel.
func (e *explainer) live(c *Cluster, live *inspect.Cluster) {
	c.setPhase(live)
	if live.Switching {
		e.note("cluster %q: what is described serves until the connections for a newer version of the Cluster are ready", c.Name)
	}
	a := c.Assignment
	waits := live.Phase == inspect.PhaseDormant || live.Unserved // so that the first RPC goes where the resources say
	if live.Priorities != nil && !waits {
		a.Live, a.Priorities = true, c.priorities(live.Priorities)
	}
	if p := a.InUse(); waits && live.Priorities != nil && p != nil {
		p.Reason += "; " + livestate.Why(live)
	}
}

// setPhase sets what happens to RPCs. What follows from the resources alone counts only while the balancer
// does not have the cluster.
func (c *Cluster) setPhase(live *inspect.Cluster) {
	if live == nil || live.Phase == inspect.PhaseDormant {
		return
	}
	c.Fate = Fate{}
	switch {
	case live.Phase == inspect.PhaseFailed:
		c.Error = livestate.Why(live)
	case live.Phase == inspect.PhaseResolving:
		c.Waits = livestate.Why(live)
	case c.Refused != "": // without an endpoint
		c.Error = c.Refused
	case live.State == inspect.TransientFailure:
		c.Error = livestate.Why(live)
	case live.State == inspect.Connecting:
		c.Waits = livestate.Why(live)
	}
}

// ConnectionsUnknown is said of a process that does not say how its connections are.
const ConnectionsUnknown = "connection state unknown"

// reported adds how a cluster is in the words of another process, or that its state does not say: said is nil.
func (c *Cluster) reported(said *livestate.Cluster, state *livestate.State) {
	c.Connections = ConnectionsUnknown
	if state != nil && state.ClustersLeftOut > 0 {
		c.Connections += ", as the process tells of its worst clusters only"
	}
	bad, complete := make(map[string]*inspect.Endpoint), false
	if said != nil {
		n := &said.Endpoints
		c.Connections, complete = n.String(), n.Connecting+n.Idle == 0 && n.Failing+n.Ejected+n.Unhealthy == len(said.BadEndpoints)
		c.setPhase(&inspect.Cluster{Name: c.Name, Kind: c.Type, Phase: inspect.Phase(said.Phase), State: inspect.State(said.State), Error: said.Error})
		for i := range said.BadEndpoints {
			bad[said.BadEndpoints[i].Addresses[0]] = &said.BadEndpoints[i]
		}
	}
	inUse := c.Assignment.InUse()
	if inUse == nil {
		return
	}
	// The health of the resource says where RPCs may go, and not where they arrive.
	inUse.Reason = fmt.Sprintf("the first with an endpoint that the control plane calls HEALTHY or UNKNOWN; %s", c.Connections)
	if complete {
		for e := range livestate.EndpointsOf(&inUse.Priority) {
			if e.Usable() {
				e.State = inspect.Ready
			}
		}
	}
	for _, e := range c.Assignment.Endpoints() {
		if b := bad[e.Addresses[0]]; b != nil {
			e.State, e.Error, e.Ejection, e.HealthCheck = b.State, b.Error, b.Ejection, b.HealthCheck
		}
	}
}
