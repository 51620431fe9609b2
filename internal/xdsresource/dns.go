package xdsresource

import (
	"math"
	"net"
	"net/netip"
	"slices"
)

// AddressFamily says which of the addresses of a name are used
// (Cluster.dns_lookup_family).
type AddressFamily int

const (
	// FamilyAny: all (AUTO, ALL). Envoy's AUTO leaves IPv4 out where there is
	// IPv6; gRPC uses both, so that a name is of use also where one of the two
	// leads nowhere.
	FamilyAny AddressFamily = iota
	// FamilyV4: IPv4 only.
	FamilyV4
	// FamilyV6: IPv6 only.
	FamilyV6
	// FamilyV4Preferred: IPv4 if there is any, else IPv6.
	FamilyV4Preferred
)

// choose returns those of addresses, each "ip:port", that the family leaves.
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
// ClusterLogicalDNS. addresses gives those of a name, as "ip:port"; the first
// name that has an address keeps it. additional_addresses, which are not names,
// are not used.
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

// endpointsOf returns what name has become with the given addresses.
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
		total := totalWeight(localities[i].Endpoints)
		for j := range localities[i].Endpoints {
			e := &localities[i].Endpoints[j]
			e.Weight = scaled(uint64(e.Weight), total, len(localities[i].Endpoints))
		}
		weights[i] = uint64(localities[i].Weight)
		if weights[i] == 0 {
			weights[i] = total
		}
		all += weights[i]
	}
	for i := range localities {
		localities[i].Weight = scaled(weights[i], all, len(localities))
	}
}

// scaled returns the weight, made smaller in proportion if total, that of n
// together, does not fit 32 bits. It is at least 1.
func scaled(weight, total uint64, n int) uint32 {
	if total <= math.MaxUint32 {
		return uint32(weight)
	}
	return uint32(max(1, float64(weight)*(math.MaxUint32-float64(n))/float64(total)))
}
