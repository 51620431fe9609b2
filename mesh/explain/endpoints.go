package explain

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// describeEndpoints describes where the RPCs of a cluster that is not an aggregate one can go.
func (e *explainer) describeEndpoints(c *Cluster, value *xdsresource.Cluster) {
	a := &ClusterAssignment{InUse: -1}
	c.Assignment = a
	endpoints, places := value.Inline, map[string]string(nil)
	if value.Kind == xdsresource.ClusterEDS {
		if endpoints, places = e.assignment(c, value.EDSServiceName); endpoints == nil {
			return
		}
	} else if r := e.findResource(typeurl.Cluster, c.Name); r != nil {
		places = placesOf(rawCluster(r.Raw).GetLoadAssignment())
	}
	dropped := ""
	for _, d := range endpoints.Drops {
		a.Drops = append(a.Drops, Drop{Category: d.Category, Percent: percent(100 * float64(d.PerMillion) / xdsresource.Million)})
		if d.PerMillion >= xdsresource.Million && dropped == "" {
			dropped = fmt.Sprintf("all RPCs are dropped (drop_overloads, category %q)", d.Category)
		}
	}
	if value.MaxRequests == 0 {
		c.refused = "circuit_breakers.max_requests is 0"
	}
	a.Priorities = describePriorities(Priorities(endpoints), c, places)
	a.choose(c, value)
	if dropped != "" { // whatever its endpoints do
		c.Error, c.refused = dropped, dropped
	}
}

// assignment returns the ClusterLoadAssignment of a cluster, and where its endpoints were written.
func (e *explainer) assignment(c *Cluster, name string) (*xdsresource.Endpoints, map[string]string) {
	r, endpoints := valueFor[*xdsresource.Endpoints](e, c, typeurl.Endpoints, name, &c.Assignment.Resource)
	if endpoints == nil {
		return nil, nil
	}
	if !e.afford(endpointDetails*countEndpoints(endpoints) + len(r.Raw.GetValue())/10) {
		c.Unknown = "its endpoints are left out"
		return nil, nil
	}
	return endpoints, placesOf(rawEndpoints(r.Raw))
}

// endpointDetails is about what an endpoint needs in an explanation. Many clusters may have the same ones.
const endpointDetails = 100

func countEndpoints(e *xdsresource.Endpoints) (n int) {
	for i := range e.Localities {
		n += 1 + len(e.Localities[i].Endpoints)
	}
	return n
}

// placesOf returns where the endpoints of an assignment were written, by address.
func placesOf(pb *endpointpb.ClusterLoadAssignment) map[string]string {
	places := make(map[string]string)
	for _, locality := range pb.GetEndpoints() {
		for _, endpoint := range locality.GetLbEndpoints() {
			if at := place(endpoint.GetMetadata(), provenance.Endpoint, provenance.Service); at != "" {
				places[addressOf(endpoint.GetEndpoint().GetAddress().GetSocketAddress())] = at
			}
		}
	}
	return places
}

// places is placesOf of an assignment that is described.
func (a *ClusterAssignment) places() map[string]string {
	places := make(map[string]string)
	for _, e := range a.Endpoints() {
		places[e.Address] = e.At
	}
	return places
}

func addressOf(a *corepb.SocketAddress) string {
	return net.JoinHostPort(a.GetAddress(), strconv.Itoa(int(a.GetPortValue())))
}

// Priorities returns the endpoints of a resource by priority, without the state that a channel would add.
func Priorities(endpoints *xdsresource.Endpoints) (all []inspect.Priority) {
	for i := range endpoints.Localities {
		l := &endpoints.Localities[i]
		at := slices.IndexFunc(all, func(p inspect.Priority) bool { return p.Number == int(l.Priority) })
		if at < 0 {
			at = len(all)
			all = append(all, inspect.Priority{Number: int(l.Priority)})
		}
		locality := inspect.Locality{Region: l.ID.Region, Zone: l.ID.Zone, SubZone: l.ID.SubZone, Weight: l.Weight}
		for _, e := range l.Endpoints {
			locality.Endpoints = append(locality.Endpoints, inspect.Endpoint{
				Addresses: append([]string{e.Address}, e.Additional...), Hostname: e.Hostname, Weight: e.Weight,
				Health: corepb.HealthStatus(e.Health).String(),
			})
		}
		all[at].Localities = append(all[at].Localities, locality)
	}
	slices.SortFunc(all, func(a, b inspect.Priority) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

// describePriorities describes the endpoints by priority, with the shares of localities.
func describePriorities(all []inspect.Priority, c *Cluster, places map[string]string) (list []Priority) {
	for i, why := range livestate.PriorityReasons(all) {
		p := priorityOf(&all[i], why, places)
		share(p.Localities, c.Settings.countsEndpoints())
		list = append(list, p)
	}
	return list
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

// share sets the shares of the localities of one priority. Those without a usable endpoint have
// none.
func share(localities []Locality, byEndpoints bool) {
	total, parts := 0.0, make([]float64, len(localities))
	for i := range localities {
		n := localities[i].usable()
		switch {
		case n == 0:
		case byEndpoints:
			parts[i] = float64(n)
		default:
			parts[i] = float64(localities[i].Weight)
		}
		total += parts[i]
	}
	for i := range localities {
		if total > 0 {
			localities[i].Percent = percent(100 * parts[i] / total)
		}
	}
}

// countsEndpoints reports whether a locality's share of RPCs is that of its usable endpoints, rather than that of its
// weight: if a policy picks among the endpoints of all localities and does not look at weights.
func (s *ClusterSettings) countsEndpoints() bool {
	return s.AcrossLocalities && s.Policy != xdsresource.PolicyRingHash && s.Policy != xdsresource.PolicyMaglev
}

// usable returns the number of endpoints that may get RPCs.
func (l *Locality) usable() (n int) {
	for i := range l.Endpoints {
		if l.Endpoints[i].Usable {
			n++
		}
	}
	return n
}

func (p *Priority) usable() (n int) {
	for i := range p.Localities {
		n += p.Localities[i].usable()
	}
	return n
}

func (p *Priority) endpoints() (n int) {
	for i := range p.Localities {
		n += len(p.Localities[i].Endpoints)
	}
	return n
}

// usable returns the number of endpoints of the priority in use that may get RPCs.
func (a *ClusterAssignment) usable() int {
	if a.InUse < 0 || a.InUse >= len(a.Priorities) {
		return 0
	}
	return a.Priorities[a.InUse].usable()
}

// choose sets the priority that is in use according to the resources alone: the first one with an
// endpoint that may get RPCs.
func (a *ClusterAssignment) choose(c *Cluster, value *xdsresource.Cluster) {
	usable := cmp.Or(c.wouldBe(), "is ") + "HEALTHY or UNKNOWN"
	for i := range a.Priorities {
		p := &a.Priorities[i]
		switch n, all := p.usable(), p.endpoints(); {
		case n == 0:
			p.Reason = "no endpoint of it " + usable
		case a.InUse >= 0:
			p.Reason = fmt.Sprintf("priority %d is preferred", a.InUse)
		default:
			p.InUse, a.InUse = true, i
			p.Reason = fmt.Sprintf("the first with an endpoint that %s: %d of %d", usable, n, all)
			if value.Kind.DNS() {
				p.Reason = "DNS resolves its names, to addresses that only the process knows"
			}
		}
	}
	switch {
	case a.InUse >= 0:
		a.Reason, c.Error = a.Priorities[a.InUse].Reason, c.refused
		return
	case len(a.Priorities) == 0:
		a.Reason = "there are no endpoints"
	default:
		a.Reason = "no endpoint " + usable
	}
	c.Error, c.refused = a.Reason, ""
}
