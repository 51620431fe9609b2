package meshroute

import (
	"maps"
	"slices"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
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
	// displaced is set if another part displaces it for some of its clients, for whom it hides no rules of parts below.
	displaced bool
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
					return c.origin().IsRoute() && above.origin().IsRoute() && r.hides(above, c)
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
	parts := slices.DeleteFunc(w.partsFor(r), func(p *rankedPart) bool { return !r.selectsSome(p.condition) })
	groups := make(map[meshpolicy.Group]map[string]string) // the condition of each
	for _, p := range parts {
		if g := p.Group(); g != (meshpolicy.Group{}) {
			groups[g] = p.condition
		}
	}
	for _, p := range parts {
		c, counts := candidate{rankedPart: p}, true
		for g, condition := range groups {
			if g.Displaces(p.Group()) {
				counts = counts && !r.implies(p.condition, condition)
				c.displaced = c.displaced || !disjoint(p.condition, condition)
			}
		}
		if counts {
			list = append(list, c)
		}
	}
	return list
}

// disjoint reports whether no client has both conditions.
func disjoint(a, b map[string]string) bool {
	for key, value := range a {
		if other, ok := b[key]; ok && other != value {
			return true
		}
	}
	return false
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

// selectsSome reports whether some clients of the region have a condition.
func (r region) selectsSome(condition map[string]string) bool {
	for key, value := range condition {
		if own, ok := r.values[key]; ok {
			if own != value {
				return false
			}
			continue
		}
		if _, excluded := r.others[key][value]; excluded {
			return false
		}
	}
	return true
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
		if c.Rules()[c.rule].Has(f) && !slices.ContainsFunc(found, func(above candidate) bool { return r.hides(above, c) }) {
			found = append(found, c)
		}
	}
	return found
}

// hides reports whether a candidate counts for all clients of the region that one below it selects.
func (r region) hides(above, below candidate) bool {
	return !above.displaced && r.implies(below.condition, above.condition)
}

// implies reports whether all clients of the region that have a condition have the other one, too.
func (r region) implies(condition, other map[string]string) bool {
	for key, value := range other {
		if own, ok := r.values[key]; ok && own == value {
			continue
		}
		if own, ok := condition[key]; !ok || own != value {
			return false
		}
	}
	return true
}
