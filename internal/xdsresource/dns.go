package xdsresource

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"time"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/faults"
)

// AddressFamily says which of the addresses of a name are used
// (Cluster.dns_lookup_family).
type AddressFamily int

const (
	// FamilyAny: all (AUTO, ALL). Envoy's AUTO does not use IPv4 if there is IPv6;
	// gRPC uses both, so that a name works even if only one of the two is routed.
	FamilyAny AddressFamily = iota
	// FamilyV4: IPv4 only.
	FamilyV4
	// FamilyV6: IPv6 only.
	FamilyV6
	// FamilyV4Preferred: IPv4 if there is any, else IPv6.
	FamilyV4Preferred
)

// choose returns the addresses, each "ip:port", that the family allows.
func (f AddressFamily) choose(addresses []string) []string {
	if f == FamilyAny {
		return addresses
	}
	var v4, v6 []string
	for _, a := range addresses {
		if addr, err := netip.ParseAddrPort(a); err != nil || addr.Addr().Unmap().Is4() {
			v4 = append(v4, a)
		} else {
			v6 = append(v6, a)
		}
	}
	if f == FamilyV6 || f == FamilyV4Preferred && len(v4) == 0 {
		return v6
	}
	return v4
}

// DNSNames returns the names, as "host:port", that DNS has to resolve for a
// cluster of type ClusterStrictDNS or ClusterLogicalDNS, in the order of the
// resource.
func (c *Cluster) DNSNames() []string {
	var names []string
	for i := range c.Inline.Localities {
		for j := range c.Inline.Localities[i].Endpoints {
			names = append(names, c.Inline.Localities[i].Endpoints[j].Address)
		}
	}
	return names
}

// Resolved returns the endpoints of a cluster of type ClusterStrictDNS or
// ClusterLogicalDNS. addresses returns those of a name, as "ip:port". If several names
// have the same address, the first one gets it. additional_addresses, which are not
// names, are not used.
//
// Each address of a STRICT_DNS cluster is an endpoint with the weight, health,
// and hostname of the name's; without hostname, it has the name.
func (c *Cluster) Resolved(addresses func(name string) []string) *Endpoints {
	resolved := &Endpoints{Name: c.Inline.Name, Drops: c.Inline.Drops}
	taken := make(map[string]bool)
	for _, l := range c.Inline.Localities {
		var endpoints []Endpoint
		for _, e := range l.Endpoints {
			var fresh []string
			for _, a := range c.AddressFamily.choose(addresses(e.Address)) {
				if !taken[a] {
					taken[a] = true
					fresh = append(fresh, a)
				}
			}
			endpoints = append(endpoints, c.endpointsOf(e, fresh)...)
		}
		if len(endpoints) > 0 {
			l.Endpoints = endpoints
			resolved.Localities = append(resolved.Localities, l)
		}
	}
	fitWeights(resolved.Localities)
	closeGaps(resolved.Localities)
	return resolved
}

// endpointsOf returns the endpoints of a name that resolves to the given addresses.
func (c *Cluster) endpointsOf(name Endpoint, addresses []string) []Endpoint {
	if len(addresses) == 0 {
		return nil
	}
	e := name
	e.Additional = nil
	if c.Kind == ClusterLogicalDNS {
		e.Address = addresses[0]
		e.Additional = slices.Clone(addresses[1:])
		return []Endpoint{e}
	}
	if e.Hostname == "" {
		e.Hostname, _, _ = net.SplitHostPort(name.Address)
	}
	endpoints := make([]Endpoint, len(addresses))
	for i, a := range addresses {
		e.Address = a
		endpoints[i] = e
	}
	return endpoints
}

// fitWeights makes the weights of the endpoints of each locality, and those of
// all localities together, fit 32 bits: how many addresses a name has is not
// known when a Cluster is validated.
func fitWeights(localities []Locality) {
	weights := make([]uint64, len(localities))
	var all uint64
	for i := range localities {
		weights[i] = uint64(localities[i].Weight)
		if weights[i] == 0 {
			weights[i] = weightByEndpoints(localities[i].Endpoints)
		}
		all += weights[i]
		total := totalWeight(localities[i].Endpoints)
		for j := range localities[i].Endpoints {
			e := &localities[i].Endpoints[j]
			e.Weight = scaled(uint64(e.Weight), total, len(localities[i].Endpoints))
		}
	}
	for i := range localities {
		localities[i].Weight = scaled(weights[i], all, len(localities))
	}
}

// scaled returns weight, one of n weights that add up to total, scaled down if total does
// not fit 32 bits. It is at least 1.
func scaled(weight, total uint64, n int) uint32 {
	if total <= math.MaxUint32 {
		return uint32(weight)
	}
	return uint32(max(1, float64(weight)*(math.MaxUint32-float64(n))/float64(total)))
}

// logicalDNS decodes the load_assignment of a cluster of type LOGICAL_DNS. Its
// locality has no name, its endpoint the name that is resolved as hostname
// (gRFC A37, "Validation" and "xds_cluster_resolver_experimental LB Policy"; gRFC
// A81, "xDS Resource Validation").
func (d clusterDecoder) logicalDNS(at *faults.Path, pb *endpointpb.ClusterLoadAssignment) *Endpoints {
	e := &Endpoints{Drops: d.drops(at.Field("policy"), pb.GetPolicy().GetDropOverloads())}
	if n := len(pb.GetEndpoints()); n != 1 {
		d.fault(at.Field("endpoints"), "must have exactly one entry in a cluster of type LOGICAL_DNS, has %d", n)
		return e
	}
	at = at.Item("endpoints", 0)
	endpoints := pb.GetEndpoints()[0].GetLbEndpoints()
	if n := len(endpoints); n != 1 {
		d.fault(at.Field("lb_endpoints"), "must have exactly one entry in a cluster of type LOGICAL_DNS, has %d", n)
		return e
	}
	l := endpointDecoder{validator: d.validator, kind: ClusterLogicalDNS, addresses: make(map[string]position)}
	endpoint := l.endpoint(at.Item("lb_endpoints", 0), position{}, endpoints[0], l.proxy(at, pb.GetEndpoints()[0]))
	endpoint.Hostname, endpoint.Weight = endpoint.Address, 1
	e.Localities = []Locality{{Weight: 1, Endpoints: []Endpoint{endpoint}}}
	return e
}

// defaultRefreshRate is that of Envoy (Cluster.dns_refresh_rate).
const defaultRefreshRate = 5 * time.Second

// resolution decodes how names are resolved, by fields of the message at a path. rate may be nil.
func (d clusterDecoder) resolution(at *faults.Path, family fmt.Stringer, rate *durationpb.Duration, c *Cluster) {
	switch family.String() {
	case "UNSPECIFIED", "AUTO", "ALL":
		c.AddressFamily = FamilyAny
	case "V4_ONLY":
		c.AddressFamily = FamilyV4
	case "V6_ONLY":
		c.AddressFamily = FamilyV6
	case "V4_PREFERRED":
		c.AddressFamily = FamilyV4Preferred
	default:
		d.fault(at.Field("dns_lookup_family"), "unknown family %v; this client knows AUTO, ALL, V4_ONLY, V6_ONLY and V4_PREFERRED", family)
	}
	if c.Kind != ClusterStrictDNS {
		return
	}
	c.RefreshRate = defaultRefreshRate
	if rate != nil {
		at := at.Field("dns_refresh_rate")
		before := d.faults.Total()
		c.RefreshRate = d.duration(at, rate)
		if c.RefreshRate <= time.Millisecond && d.faults.Total() == before {
			d.fault(at, "must be more than 1ms, is %v", c.RefreshRate)
		}
	}
}
