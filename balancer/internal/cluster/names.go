package cluster

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/dynxds/dynxds/balancer/internal/leaf"
	"github.com/dynxds/dynxds/balancer/internal/locality"
	"github.com/dynxds/dynxds/balancer/internal/priority"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// names names the priorities of a cluster after their localities: when all localities of
// priority 1 move to priority 0, their policy moves with them, and so do its connections (gRFC
// A56, "LB Policy Configuration").
type names struct {
	// of has the names of each locality's priorities at the last update. A locality may have
	// endpoints in several priorities.
	of map[xdsresource.LocalityID][]string
	// made counts the names.
	made int
	// seed is what the subsets of this client's endpoints come from.
	seed uint64
}

// entries returns the configurations of the priorities in order of preference, none if no
// endpoint is usable.
func (n *names) entries(c *xdsresource.Cluster, e *xdsresource.Endpoints) []priority.Entry[locality.Config] {
	if !usable(e.Localities) {
		return nil
	}
	of := make(map[xdsresource.LocalityID][]string, len(e.Localities))
	taken := make(map[string]bool)
	var entries []priority.Entry[locality.Config]
	for _, localities := range byPriority(e.Localities) {
		name := n.choose(localities, taken)
		taken[name] = true
		for i := range localities {
			id := localities[i].ID
			of[id] = append(of[id], name)
		}
		if c.AcrossLocalities {
			localities = merged(localities)
		}
		localities = subset(localities, c.Subsets.OfPriority, n.seed)
		if size := c.Subsets.OfLocality; size > 0 {
			localities = slices.Clone(localities)
			for i := range localities {
				localities[i] = subset(localities[i:i+1], size, n.seed)[0]
			}
		}
		entries = append(entries, priority.Entry[locality.Config]{
			Name: name, Config: locality.Config{LeafConfig: c.LBConfig, Localities: localities},
		})
	}
	n.of = of
	return entries
}

// usable reports whether any of the localities has an endpoint that may get RPCs.
func usable(localities []xdsresource.Locality) bool {
	return slices.ContainsFunc(localities, func(l xdsresource.Locality) bool { return leaf.Usable(l.Endpoints) })
}

// choose returns the first name that one of the localities has and that is not taken, or
// else a new name.
func (n *names) choose(localities []xdsresource.Locality, taken map[string]bool) string {
	for i := range localities {
		for _, name := range n.of[localities[i].ID] {
			if !taken[name] {
				return name
			}
		}
	}
	n.made++
	return strconv.Itoa(n.made)
}

// merged combines the localities, for a policy that picks across them.
func merged(localities []xdsresource.Locality) []xdsresource.Locality {
	all := xdsresource.Locality{Priority: localities[0].Priority, Weight: 1}
	var total uint64
	for i := range localities {
		total += uint64(localities[i].Weight)
	}
	for i := range localities {
		all.Endpoints = append(all.Endpoints, weighed(localities[i], total)...)
	}
	return []xdsresource.Locality{all}
}

// one is the fixed-point form of 1 that shares have (gRFC A113): those of a policy's endpoints fit 32 bits together.
const one = 1 << 31

// weighed returns the endpoints of a locality of a priority whose localities have the weight total together. Each
// endpoint's weight is its share of its locality's RPCs, times the locality's share of the priority's, so that how many
// endpoints a locality has does not matter to the others (gRFC A113). Endpoints that get no RPCs keep their weights.
func weighed(l xdsresource.Locality, total uint64) []xdsresource.Endpoint {
	share := uint64(l.Weight) * one / total
	sum := xdsresource.UsableWeight(l.Endpoints)
	endpoints := slices.Clone(l.Endpoints)
	for i := range endpoints {
		if e := &endpoints[i]; e.Health.Usable() {
			e.Weight = max(1, uint32(uint64(e.Weight)*one/sum*share/one))
		}
	}
	return endpoints
}

// byPriority groups localities by priority, in order.
func byPriority(localities []xdsresource.Locality) [][]xdsresource.Locality {
	sorted := slices.Clone(localities)
	slices.SortStableFunc(sorted, func(a, b xdsresource.Locality) int { return cmp.Compare(a.Priority, b.Priority) })
	var groups [][]xdsresource.Locality
	for len(sorted) > 0 {
		end := 1
		for end < len(sorted) && sorted[end].Priority == sorted[0].Priority {
			end++
		}
		groups = append(groups, sorted[:end:end])
		sorted = sorted[end:]
	}
	return groups
}

// tooMany is the number of endpoints of the first priority that has more than bounds.ManyEndpoints, or 0. A policy that
// connects only to the endpoints that RPCs are for may have any number.
func tooMany(policy string, entries []priority.Entry[locality.Config]) int {
	switch policy {
	case xdsresource.PolicyRingHash, xdsresource.PolicyMaglev, "pick_first":
		return 0
	}
	for _, e := range entries {
		n := 0
		for _, l := range e.Config.Localities {
			n += len(l.Endpoints)
		}
		if n > bounds.ManyEndpoints {
			return n
		}
	}
	return 0
}
