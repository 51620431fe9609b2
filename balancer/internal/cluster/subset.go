package cluster

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/locality"
	"github.com/dynxds/dynxds/balancer/internal/priority"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// subset returns the localities with size endpoints together: of those that get RPCs the ones whose
// addresses hash lowest with the seed (gRFC A68, "Subsetting algorithm"). So each client has its own,
// and one that comes or goes changes one endpoint at most. They are in the order of their hashes.
// With 0, or where there are no more than that, it returns the localities as they are.
func subset(localities []xdsresource.Locality, size uint32, seed uint64) []xdsresource.Locality {
	if size == 0 {
		return localities
	}
	type candidate struct {
		hash               uint64
		locality, endpoint int
	}
	var all []candidate
	hash := xxhash.NewWithSeed(seed)
	for i := range localities {
		for j := range localities[i].Endpoints {
			e := &localities[i].Endpoints[j]
			if !e.Health.Usable() {
				continue
			}
			hash.ResetWithSeed(seed)
			_, _ = hash.WriteString(e.Address) // It has no errors.
			all = append(all, candidate{hash.Sum64(), i, j})
		}
	}
	if uint64(len(all)) <= uint64(size) {
		return localities
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(a.hash, b.hash) })
	result := slices.Clone(localities)
	for i := range result {
		result[i].Endpoints = nil
	}
	for _, c := range all[:size] {
		l := &result[c.locality]
		l.Endpoints = append(l.Endpoints, localities[c.locality].Endpoints[c.endpoint])
	}
	return result
}

// usedOf returns the conns.Key of the endpoints in the subsets, nil for a cluster that uses all.
func usedOf(c *xdsresource.Cluster, entries []priority.Entry[locality.Config]) map[string]bool {
	if c.Subsets == (xdsresource.Subsets{}) || c.Outliers == nil {
		return nil
	}
	used := make(map[string]bool)
	for _, entry := range entries {
		for _, l := range entry.Config.Localities {
			for i := range l.Endpoints {
				used[conns.Key(&l.Endpoints[i])] = true
			}
		}
	}
	return used
}
