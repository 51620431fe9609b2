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
	// Rule has the matches, and the fields that some policy has.
	Rule
	// MatchesFrom are the rules with the matches, from most to least specific.
	MatchesFrom []*Rule
	// From are the origins of the fields, nil for those that no policy has.
	From [NumFields]*Rule
}

// Compare orders parts from least to most specific: by the clients' targetRef, then by the
// destination's, then by age, then by the policy's name, where the first in the alphabet is the most specific, as in
// Kuma, then by whether a policy names the port, then by its first entry. Names are unique.
func (t *To) Compare(o *To) int {
	return cmp.Or(
		cmp.Compare(t.Clients.specificity(), o.Clients.specificity()),
		cmp.Compare(t.TargetRef.specificity(), o.TargetRef.specificity()),
		cmp.Compare(o.Policy.Created, t.Policy.Created),
		strings.Compare(o.Policy.Name, t.Policy.Name), cmp.Compare(t.OnePort, o.OnePort), cmp.Compare(o.Index, t.Index),
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
	return Group{t.Policy.Kind, t.Clients.Tags[NamespaceTag]}
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

// MergeParts merges parts that select one client, the least specific first: rules with equal matches become one, whose fields are each
// that of the most specific rule that has it.
func MergeParts(parts []*To) (m Merged) {
	var groups []Group // few: a client has one namespace
	for _, p := range parts {
		if !slices.Contains(groups, p.Group()) {
			groups = append(groups, p.Group())
		}
	}
	at := make(map[string]int)
	for _, p := range slices.Backward(parts) {
		if slices.ContainsFunc(groups, func(g Group) bool { return g.Displaces(p.Group()) }) {
			continue
		}
		m.Complete = m.Complete || p.Policy.Complete
		m.Rules = slices.Grow(m.Rules, len(p.Rules))
		for i := range p.Rules {
			r := &p.Rules[i]
			if _, known := at[r.matchesKey]; !known {
				at[r.matchesKey] = len(m.Rules)
				m.Rules = append(m.Rules, MergedRule{Rule: Rule{Matches: r.Matches}})
			}
			m.Rules[at[r.matchesKey]].add(r)
		}
	}
	return m
}

// add fills in the fields that no more specific rule has. Of the rules of the Gateway API's routes only the most specific one counts
// (GRPCRouteRule.matches: "matching precedence").
func (m *MergedRule) add(r *Rule) {
	if r.IsRoute() && slices.ContainsFunc(m.MatchesFrom, (*Rule).IsRoute) {
		return
	}
	m.MatchesFrom = append(m.MatchesFrom, r)
	for f := range NumFields {
		if m.From[f] == nil && r.Has(f) {
			m.From[f] = r
		}
	}
	if m.From[FieldFilters] == r {
		m.Filters, m.Problem = r.Filters, r.Problem
	}
	if m.From[FieldBackendRefs] == r {
		m.BackendRefs, m.NoBackends = r.BackendRefs, r.NoBackends
	}
	m.Timeouts, m.Retry, m.Session = cmp.Or(m.Timeouts, r.Timeouts), cmp.Or(m.Retry, r.Retry), cmp.Or(m.Session, r.Session)
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
