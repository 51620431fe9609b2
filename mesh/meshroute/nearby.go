package meshroute

import (
	"maps"
	"slices"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// This file is about endpoints that clients prefer by where they run. Such clients get a variant of the endpoints, in which
// these are in the first priority.

// preference is a variant of the endpoints for the clients with a value of a key. rank is that of serviceCompiler.assignment. specificity orders
// the variants that fit one client: its node is more specific than its zone.
type preference struct {
	key, value  string
	specificity int
	rank        func(*Endpoint) (lower uint32, wanted bool)
}

// maxRank is the largest rank.
const maxRank = 2

// maxPreferred bounds the endpoints in the variants of a service by node: each node has one, with all endpoints.
const maxPreferred = 20_000

// preferences returns the variants of the endpoints with some tags by zone and by node: a client on a node that has endpoints of its own falls back
// to those for the zone of the node. If there are host names, the only variant is without these, for clients that reject them.
func (s *Service) preferences(tags map[string]string) (list []preference) {
	if slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return e.has(tags) && !e.isIP() }) {
		onlyIP := func(e *Endpoint) (uint32, bool) { return 0, e.isIP() }
		return []preference{{meshpolicy.AddressesKey, meshpolicy.IPAddresses, 1, onlyIP}}
	}
	zones, zoneOf := make(map[string]bool), make(map[string]string)
	count := 0
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if !e.has(tags) {
			continue
		}
		count++
		for _, zone := range e.ForZones {
			zones[zone] = true
		}
		for _, node := range e.ForNodes {
			zoneOf[node] = e.Locality.Zone
		}
	}
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		list = append(list, preference{meshpolicy.ZoneKey, zone, 1, near("", zone)})
	}
	if len(zoneOf)*count > maxPreferred {
		return list
	}
	for _, node := range slices.Sorted(maps.Keys(zoneOf)) {
		list = append(list, preference{meshpolicy.NodeKey, node, 2, near(node, zoneOf[node])})
	}
	return list
}

// near prefers endpoints for a node, which may be empty, to those for a zone, and these to others.
func near(node, zone string) func(*Endpoint) (lower uint32, wanted bool) {
	return func(e *Endpoint) (uint32, bool) {
		switch {
		case node != "" && slices.Contains(e.ForNodes, node):
			return 0, true
		case slices.Contains(e.ForZones, zone):
			return 1, true
		}
		return maxRank, true
	}
}
