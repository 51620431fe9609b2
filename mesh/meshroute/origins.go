package meshroute

import (
	"maps"
	"slices"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/internal/meshpolicy"
)

// This file finds the rules that decide a route. Clients with one variant may be selected by different
// policies with the same result: then each decides for some of them, and all of them are named.

// origins are the places of the rules that decide the parts of a route.
type origins struct {
	matches []Source
	fields  [meshpolicy.NumFields][]Source
}

// rankedPart is a part of a policy.
type rankedPart struct {
	meshpolicy.Part
	// rank is 0 for the most specific one.
	rank int
	// condition is the tags of its clients.
	condition map[string]string
}

func newPlaceWriter(p places, parts []meshpolicy.Part) *placeWriter {
	w := &placeWriter{places: p, byService: make(map[string][]*rankedPart), made: make(map[string]*corepb.Metadata)}
	for rank, part := range slices.Backward(parts) {
		name := part.Policy.TargetRef.Name
		w.byService[name] = append(w.byService[name], &rankedPart{part, len(parts) - 1 - rank, conditionOf(part.Policy.TargetRef)})
	}
	return w
}

// samePlaces reports whether the rules of equal parts are at the same places.
func samePlaces(a, b []meshpolicy.Part) bool {
	return slices.EqualFunc(a, b, func(a, b meshpolicy.Part) bool {
		if a == b {
			return true
		}
		if a.Policy.Source.File != b.Policy.Source.File {
			return false
		}
		return slices.EqualFunc(a.Rules(), b.Rules(), func(a, b meshpolicy.Rule) bool { return a.SameLines(&b) })
	})
}

// candidate is a rule in a part that selects some clients of a region.
type candidate struct {
	*rankedPart
	rule int
	// always is set if it selects all of them.
	always bool
}

func (c candidate) origin() meshpolicy.Origin {
	return meshpolicy.Origin{Policy: c.Policy, To: c.To, Rule: c.rule}
}

// deciding has, for each region, the candidates by the key of their matches, with the most specific first.
type deciding struct {
	regions []region
	byKey   []map[string][]candidate
}

func (w *placeWriter) decidingIn(regions []region) deciding {
	d := deciding{regions: regions}
	for _, r := range regions {
		byKey := make(map[string][]candidate)
		for _, c := range w.candidates(r) {
			for i := range c.Rules() {
				key := c.Rules()[i].MatchesKey()
				c.rule = i
				if !slices.ContainsFunc(byKey[key], func(above candidate) bool {
					return c.origin().IsRoute() && above.origin().IsRoute() && r.implies(c, above)
				}) {
					byKey[key] = append(byKey[key], c)
				}
			}
		}
		d.byKey = append(d.byKey, byKey)
	}
	return d
}

// candidates returns the parts that select some clients of a region, and count for some of these, without a rule.
func (w *placeWriter) candidates(r region) (list []candidate) {
	for _, p := range w.partsFor(r) {
		if some, all := r.selectedBy(p.condition); some {
			list = append(list, candidate{rankedPart: p, always: all})
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(c candidate) bool {
		return slices.ContainsFunc(list, func(o candidate) bool { return o.Displaces(c.Part) && r.implies(c, o) })
	})
}

// partsFor returns the parts for the clients of the service of a region, or for all.
func (w *placeWriter) partsFor(r region) []*rankedPart {
	service, known := r.values[meshpolicy.ServiceKey]
	var parts []*rankedPart
	if known {
		parts = slices.Concat(w.byService[service], w.byService[""])
	} else {
		for list := range maps.Values(w.byService) {
			parts = append(parts, list...)
		}
	}
	slices.SortFunc(parts, func(a, b *rankedPart) int { return a.rank - b.rank })
	return parts
}

// selectedBy reports whether a condition selects some clients of the region, and whether it selects all.
func (r region) selectedBy(condition map[string]string) (some, all bool) {
	all = true
	for key, value := range condition {
		if own, ok := r.values[key]; ok {
			if own != value {
				return false, false
			}
			continue
		}
		if _, excluded := r.others[key][value]; excluded {
			return false, false
		}
		all = false
	}
	return true, all
}

// of returns the origins of a route by its rules.
func (d deciding) of(rules []ruleRef) origins {
	var o origins
	for i, byKey := range d.byKey {
		for _, ref := range rules {
			o.add(d.regions[i], byKey[ref.matches], ref.match)
		}
	}
	return o
}

// add adds the places for one region and rule.
func (o *origins) add(r region, candidates []candidate, match int) {
	for _, c := range candidates {
		o.matches = addSource(o.matches, c.origin().MatchSource(match))
	}
	for f := range meshpolicy.NumFields {
		for _, c := range r.winners(candidates, f) {
			o.fields[f] = addSource(o.fields[f], c.origin().FieldSource(f))
		}
	}
}

func addSource(list []Source, s Source) []Source {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// winners returns the rules that are, for some clients of the region, the most specific one with a field.
func (r region) winners(candidates []candidate, f meshpolicy.Field) []candidate {
	var found []candidate
	for _, c := range candidates {
		if !c.Rules()[c.rule].Has(f) || slices.ContainsFunc(found, func(above candidate) bool { return r.implies(c, above) }) {
			continue
		}
		found = append(found, c)
		if c.always {
			break
		}
	}
	return found
}

// implies reports whether all clients of the region that c selects are selected by another candidate too.
func (r region) implies(c, above candidate) bool {
	for key, value := range above.condition {
		if own, ok := r.values[key]; ok && own == value {
			continue
		}
		if own, ok := c.condition[key]; !ok || own != value {
			return false
		}
	}
	return true
}
