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

// describeEndpoints describes where the RPCs of a cluster that is not an aggregate one can go.
func (e *explainer) describeEndpoints(c *Cluster, raw *clusterpb.Cluster) {
	value, a := c.value, new(ClusterAssignment)
	c.Assignment = a
	endpoints := value.Inline
	if value.Kind == xdsresource.ClusterEDS {
		if endpoints = e.assignment(c, value.EDSServiceName); endpoints == nil {
			return
		}
	} else {
		a.At = livestate.EndpointPlaces(raw.GetLoadAssignment())
	}
	for _, d := range endpoints.Drops {
		a.Drops = append(a.Drops, Drop{Category: d.Category, Percent: percent(100 * float64(d.PerMillion) / xdsresource.Million)})
		if d.PerMillion >= xdsresource.Million && c.refused == "" {
			c.refused = fmt.Sprintf("all RPCs are dropped (drop_overloads, category %q)", d.Category)
		}
	}
	a.Priorities = describePriorities(configured(value, endpoints), c.byEndpoints)
	none := a.choose(value.Kind.DNS(), cmp.Or(c.wouldBe(), "is ")+"HEALTHY or UNKNOWN")
	switch {
	case c.refused != "": // whatever its endpoints do
		c.Error = c.refused
	case none != "":
		c.Error = none
	case value.MaxRequests == 0:
		c.refused = "circuit_breakers.max_requests is 0"
		c.Error = c.refused
	}
}

// assignment returns the endpoints in the ClusterLoadAssignment of a cluster.
func (e *explainer) assignment(c *Cluster, name string) (endpoints *xdsresource.Endpoints) {
	var raw *endpointpb.ClusterLoadAssignment
	if c.Assignment.Resource, endpoints, raw, c.Fate = find[*xdsresource.Endpoints, *endpointpb.ClusterLoadAssignment](e, typeurl.Endpoints, name); endpoints == nil {
		return nil
	}
	if e.full || !e.afford(endpointDetails*countEndpoints(endpoints)+proto.Size(raw)/10) {
		c.Unknown = "its endpoints are left out"
		return nil
	}
	c.Assignment.At = livestate.EndpointPlaces(raw)
	return endpoints
}

// endpointDetails is about what an endpoint needs in an explanation. Many clusters may have the same ones.
const endpointDetails = 100

func countEndpoints(e *xdsresource.Endpoints) (n int) {
	for i := range e.Localities {
		n += 1 + len(e.Localities[i].Endpoints)
	}
	return n
}

// configured returns the endpoints of a resource by priority, without the state that a channel adds.
func configured(c *xdsresource.Cluster, endpoints *xdsresource.Endpoints) []inspect.Priority {
	all := balancer.Describe("", &balancer.ClusterState{Cluster: c, Endpoints: endpoints}).Priorities
	for i := range all {
		p := &all[i]
		p.Use, p.State = inspect.Use{}, ""
		for j := range p.Localities {
			p.Localities[j].State = ""
		}
		for e := range livestate.EndpointsOf(p) {
			e.State = ""
		}
	}
	return all
}

// describePriorities adds to priorities why they are in use or not, and the shares of localities: by their weights, or, if a
// policy picks among the endpoints of all localities and does not look at weights, by their usable endpoints. Those without a
// usable endpoint have none.
func describePriorities(all []inspect.Priority, byEndpoints bool) (list []Priority) {
	for i, why := range livestate.PriorityReasons(all) {
		p := Priority{Priority: all[i], Reason: why, Percents: make([]float64, len(all[i].Localities))}
		total := 0.0
		for j := range p.Localities {
			l := &p.Localities[j]
			switch n := usable(l); {
			case n == 0:
			case byEndpoints:
				p.Percents[j] = float64(n)
			default:
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

// usable returns the number of endpoints of a locality that may get RPCs.
func usable(l *inspect.Locality) (n int) {
	for i := range l.Endpoints {
		if l.Endpoints[i].Usable() {
			n++
		}
	}
	return n
}

// choose sets the priority that is in use according to the resources alone: the first one with an endpoint that may get RPCs,
// as the condition says in words. none is why there is none.
func (a *ClusterAssignment) choose(dns bool, condition string) (none string) {
	var inUse *Priority
	for i := range a.Priorities {
		p, all, usable := &a.Priorities[i], 0, 0
		for e := range livestate.EndpointsOf(&p.Priority) {
			all++
			if e.Usable() {
				usable++
			}
		}
		switch {
		case usable == 0:
			p.Reason = "no endpoint of it " + condition
		case inUse != nil:
			p.Reason = fmt.Sprintf("priority %d is preferred", inUse.Number)
		default:
			inUse, p.Use.InUse = p, true
			p.Reason = fmt.Sprintf("the first with an endpoint that %s: %d of %d", condition, usable, all)
			if dns {
				p.Reason = "DNS resolves its names, to addresses that only the process knows"
			}
		}
	}
	switch {
	case inUse != nil:
		return ""
	case len(a.Priorities) == 0:
		return "there are no endpoints"
	default:
		return "no endpoint " + condition
	}
}
