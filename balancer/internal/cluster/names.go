package cluster

import (
	"cmp"
	"math"
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
	// before is of before the localities last changed: a locality that returns gets the policy
	// that the priorities have kept.
	before map[xdsresource.LocalityID][]string
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
		var before []xdsresource.Locality
		if c.AcrossLocalities {
			before, localities = localities, merged(localities)
		}
		localities = subset(localities, c.Subsets.OfPriority, n.seed)
		if size := c.Subsets.OfLocality; size > 0 {
			localities = slices.Clone(localities)
			for i := range localities {
				localities[i] = subset(localities[i:i+1], size, n.seed)[0]
			}
		}
		entries = append(entries, priority.Entry[locality.Config]{
			Name: name,
			Config: locality.Config{
				LeafPolicy: c.LBPolicy, LeafConfig: c.LBConfig,
				AcrossLocalities: c.AcrossLocalities, Merged: before, Localities: localities,
			},
		})
	}
	if !sameLocalities(of, n.of) {
		n.before = n.of
	}
	n.of = of
	return entries
}

// usable reports whether any of the localities has an endpoint that may get RPCs.
func usable(localities []xdsresource.Locality) bool {
	return slices.ContainsFunc(localities, func(l xdsresource.Locality) bool { return leaf.Usable(l.Endpoints) })
}

func sameLocalities(a, b map[xdsresource.LocalityID][]string) bool {
	if len(a) != len(b) {
		return false
	}
	for id := range a {
		if _, ok := b[id]; !ok {
			return false
		}
	}
	return true
}

// choose returns the first name that one of the localities has or had and that is not taken, or
// else a new name.
func (n *names) choose(localities []xdsresource.Locality, taken map[string]bool) string {
	for _, of := range []map[xdsresource.LocalityID][]string{n.of, n.before} {
		for i := range localities {
			for _, name := range of[localities[i].ID] {
				if !taken[name] {
					return name
				}
			}
		}
	}
	n.made++
	return strconv.Itoa(n.made)
}

// merged combines the localities, for a policy that picks across them. The weight of an
// endpoint is multiplied by that of its locality (gRFC A42).
func merged(localities []xdsresource.Locality) []xdsresource.Locality {
	all := xdsresource.Locality{Priority: localities[0].Priority, Weight: 1}
	for i := range localities {
		all.Endpoints = append(all.Endpoints, localities[i].Endpoints...)
	}
	multiplyWeights(all.Endpoints, localities)
	return []xdsresource.Locality{all}
}

// multiplyWeights sets the weights of endpoints, which are those of the localities in order.
// The weights of a policy must fit 32 bits together: larger products are scaled down.
func multiplyWeights(endpoints []xdsresource.Endpoint, localities []xdsresource.Locality) {
	products := make([]uint64, 0, len(endpoints))
	var total float64
	for i := range localities {
		for _, e := range localities[i].Endpoints {
			product := uint64(e.Weight) * uint64(localities[i].Weight)
			products = append(products, product)
			total += float64(product)
		}
	}
	scale := min(1, (math.MaxUint32-float64(len(endpoints)))/total)
	for i, product := range products {
		if scale < 1 {
			product = max(1, uint64(float64(product)*scale))
		}
		endpoints[i].Weight = uint32(product)
	}
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
