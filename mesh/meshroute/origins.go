package meshroute

import (
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

func newPlaceWriter(p places, parts []meshpolicy.Part) *placeWriter {
	conditions := conditionsOf(parts)
	w := &placeWriter{places: p, parts: parts, holding: newTagIndex[int](keysOf(conditions)), made: make(map[string]*corepb.Metadata)}
	for i, c := range conditions {
		w.holding.add(c, i)
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

// deciding has the merged rules for each of some kinds of clients, the most specific one first, by the key of their matches.
type deciding []map[string]*meshpolicy.MergedRule

func (w *placeWriter) decidingFor(kinds []map[string]string) deciding {
	var d deciding
	for _, tags := range slices.Backward(kinds) {
		holding := w.holding.within(tags)
		slices.Sort(holding)
		parts := make([]meshpolicy.Part, len(holding))
		for i, part := range holding {
			parts[i] = w.parts[part]
		}
		merged, byKey := meshpolicy.MergeParts(parts), make(map[string]*meshpolicy.MergedRule)
		for i := range merged.Rules {
			byKey[merged.Rules[i].MatchesKey()] = &merged.Rules[i]
		}
		d = append(d, byKey)
	}
	return d
}

// of returns the origins of a route by its rules.
func (d deciding) of(rules []ruleRef) origins {
	var o origins
	for _, byKey := range d {
		for _, ref := range rules {
			if rule := byKey[ref.matches]; rule != nil {
				o.add(rule, ref.match)
			}
		}
	}
	return o
}

// add adds the places of a rule.
func (o *origins) add(rule *meshpolicy.MergedRule, match int) {
	for _, from := range rule.MatchesFrom {
		o.matches = addSource(o.matches, from.MatchSource(match))
	}
	for f, from := range rule.From {
		if from.Policy != nil {
			o.fields[f] = addSource(o.fields[f], from.FieldSource(meshpolicy.Field(f)))
		}
	}
}

func addSource(list []Source, s Source) []Source {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}
