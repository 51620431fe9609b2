package meshpolicy

import (
	"cmp"
	"slices"
	"strings"
)

// Merged has the merged rules of several policies for one service.
type Merged struct {
	// Rules have different matches. Those of more specific policies are first.
	Rules []MergedRule
	// Complete says that requests that no rule applies to are refused. Otherwise they go to the service itself.
	Complete bool
}

// MergedRule is a rule with the origins of its fields.
type MergedRule struct {
	// Rule has the fields that some policy has, and no lines.
	Rule
	// MatchesFrom are the rules with the matches, from most to least specific.
	MatchesFrom []*Rule
	// From are the origins of the fields, nil for those that no policy has.
	From [NumFields]*Rule
}

// Compare orders parts from least to most specific: by the clients' targetRef, then by the
// destination's, then by age, then by the policy's name, where the first in the alphabet is the most specific, as in
// Kuma. Names are unique.
func (t *To) Compare(o *To) int {
	return cmp.Or(
		cmp.Compare(t.Policy.TargetRef.kind(), o.Policy.TargetRef.kind()),
		cmp.Compare(t.TargetRef.kind(), o.TargetRef.kind()),
		cmp.Compare(o.Policy.Created, t.Policy.Created),
		strings.Compare(o.Policy.Name, t.Policy.Name),
	)
}

// Group is the routes of the Gateway API that may be merged with each other (GEP-1294, "Multiple routes for a Service" and "Route
// types"). All routes of a group are for the same clients: the clients of the namespace, or all clients if it is empty. The group of a
// MeshHTTPRoute is zero.
type Group struct{ Kind, Namespace string }

// Group returns the group of the part.
func (t *To) Group() Group {
	if t.Policy.Kind == "" {
		return Group{}
	}
	return Group{t.Policy.Kind, t.Policy.TargetRef.Tags[NamespaceTag]}
}

// Displaces reports whether the routes of the other group do not count for clients that both are for: a consumer route displaces
// producer routes, and a GRPCRoute the HTTPRoutes beside it.
func (g Group) Displaces(o Group) bool {
	switch {
	case g == o || g == Group{} || o == Group{}:
		return false
	case g.Namespace != o.Namespace:
		return o.Namespace == ""
	}
	return g.Kind == GRPCRouteKind
}

// MergeParts merges parts that select one client, the least specific first.
func MergeParts(parts []*To) Merged {
	var groups []Group // few: a client has one namespace
	for _, p := range parts {
		if g := p.Group(); g != (Group{}) && !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	if len(groups) > 1 {
		parts = slices.DeleteFunc(slices.Clone(parts), func(p *To) bool {
			return slices.ContainsFunc(groups, func(g Group) bool { return g.Displaces(p.Group()) })
		})
	}
	layers := make([]Merged, 0, len(parts))
	for _, p := range slices.Backward(parts) {
		layers = append(layers, p.Merged())
	}
	return Join(layers...)
}

// Join merges layers, the most specific first. It is idempotent and, for layers of MeshHTTPRoutes, associative. Rules with equal matches are merged field by field,
// but of the rules of the Gateway API's routes only the most specific one counts (GRPCRouteRule.matches: "matching precedence").
func Join(layers ...Merged) Merged {
	if len(layers) == 1 {
		return layers[0]
	}
	var m Merged
	index := make(map[string]int)
	for _, layer := range layers {
		m.Complete = m.Complete || layer.Complete
		for _, rule := range layer.Rules {
			if i, ok := index[rule.matchesKey]; ok {
				m.Rules[i].complete(rule)
				continue
			}
			index[rule.matchesKey] = len(m.Rules)
			rule.MatchesFrom = slices.Clip(rule.MatchesFrom)
			m.Rules = append(m.Rules, rule)
		}
	}
	return m
}

// complete fills in missing fields from a less specific rule.
func (r *MergedRule) complete(below MergedRule) {
	hasRoute := slices.ContainsFunc(r.MatchesFrom, (*Rule).IsRoute)
	counts := func(o *Rule) bool { return !hasRoute || !o.IsRoute() }
	for _, o := range below.MatchesFrom {
		if counts(o) && !slices.Contains(r.MatchesFrom, o) {
			r.MatchesFrom = append(r.MatchesFrom, o)
		}
	}
	for f := range NumFields {
		if !r.Has(f) && counts(below.From[f]) {
			r.copyField(f, &below.Rule)
			r.From[f] = below.From[f]
		}
	}
}

// Merged returns the rules of one part.
func (t *To) Merged() Merged {
	m := Merged{Rules: make([]MergedRule, len(t.Rules)), Complete: t.Policy.Complete}
	for i := range t.Rules {
		r := &t.Rules[i]
		m.Rules[i] = MergedRule{Rule: *r, MatchesFrom: []*Rule{r}}
		m.Rules[i].Line, m.Rules[i].Lines = 0, [NumFields]int{}
		for f := range NumFields {
			if r.Has(f) {
				m.Rules[i].From[f] = r
			}
		}
	}
	return m
}

// Route is one entry of a rule's matches.
type Route struct {
	Match *Match
	// Rule is nil for requests that match no rule; Merged.Complete says where these go. Otherwise Index is that of Match in its Matches.
	Rule  *MergedRule
	Index int
	// Unreachable is set if an earlier route matches all requests.
	Unreachable bool
}

// Routes returns the matches of all rules in the order in which they are tried. The last reachable one
// matches everything; it has no rule if no rule does.
func (m Merged) Routes() []Route {
	var list []Route
	for i := range m.Rules {
		for j := range m.Rules[i].Matches {
			list = append(list, Route{Match: &m.Rules[i].Matches[j], Rule: &m.Rules[i], Index: j})
		}
	}
	slices.SortStableFunc(list, func(a, b Route) int { return compareMatches(a.Match, b.Match) })
	last := slices.IndexFunc(list, func(r Route) bool { return r.Match.all() })
	if last < 0 {
		return append(list, Route{Match: &Match{}})
	}
	for i := last + 1; i < len(list); i++ {
		list[i].Unreachable = true
	}
	return list
}
