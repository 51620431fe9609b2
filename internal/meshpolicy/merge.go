package meshpolicy

import (
	"cmp"
	"slices"
	"strings"
)

// Merged is what several policies together say of the requests of one client, or of
// several alike, to one service.
type Merged struct {
	// Rules have different matches. Those of more specific policies come first.
	Rules []MergedRule
}

// MergedRule is a rule and where its parts come from.
type MergedRule struct {
	Matches []Match
	// Filters and BackendRefs are nil if no policy has the field.
	Filters     []Filter
	BackendRefs []BackendRef
	// MatchesFrom are the policies that have a rule with the matches, from most to
	// least specific.
	MatchesFrom []Origin
	// FiltersFrom and BackendRefsFrom are where the fields come from. They are
	// zero for fields that are nil.
	FiltersFrom, BackendRefsFrom Origin

	matchesKey string
}

// Origin is a rule in a policy.
type Origin struct {
	// Policy is nil in the zero Origin.
	Policy *Policy
	// To and Rule are indexes in Policy.To and To.Rules.
	To, Rule int
}

// Source is the line of the rule.
func (o Origin) Source() Source {
	if o.Policy == nil {
		return Source{}
	}
	return Source{o.Policy.Source.File, o.Policy.To[o.To].Rules[o.Rule].Line}
}

// String names the policy and the line.
func (o Origin) String() string {
	if o.Policy == nil {
		return "no policy"
	}
	return "policy " + o.Policy.Name + " (" + o.Source().String() + ")"
}

// Merge merges the policies that select the client and have something to say of the
// service, whatever the order in which they are given.
func Merge(policies []*Policy, c Client, service string) Merged {
	var parts []Part
	for _, p := range policies {
		if !p.TargetRef.Selects(c) {
			continue
		}
		parts = append(parts, PartsFor(p, service)...)
	}
	slices.SortFunc(parts, Part.Compare)
	return MergeParts(parts)
}

// Part is what one policy says of one service.
type Part struct {
	Policy *Policy
	// To is an index in Policy.To.
	To int
}

// Rules are the rules of the part.
func (p Part) Rules() []Rule { return p.Policy.To[p.To].Rules }

// PartsFor returns what a policy says of a service: up to two parts, as it may also
// speak of all services.
func PartsFor(p *Policy, service string) []Part {
	var parts []Part
	for i := range p.To {
		if name := p.To[i].TargetRef.Name; name == "" || name == service {
			parts = append(parts, Part{p, i})
		}
	}
	return parts
}

// Compare puts the less specific part first: by the clients' targetRef, then by the
// destination's, then by name, of which the first in the alphabet is the most
// specific, as in Kuma. No two policies have the same name.
func (p Part) Compare(o Part) int {
	return cmp.Or(
		cmp.Compare(p.Policy.TargetRef.kind(), o.Policy.TargetRef.kind()),
		cmp.Compare(p.Policy.To[p.To].TargetRef.kind(), o.Policy.To[o.To].TargetRef.kind()),
		strings.Compare(o.Policy.Name, p.Policy.Name),
	)
}

// MergeParts merges parts, of which the least specific comes first.
func MergeParts(parts []Part) Merged {
	layers := make([]Merged, 0, len(parts))
	for _, p := range slices.Backward(parts) {
		layers = append(layers, p.Merged())
	}
	return Join(layers...)
}

// Join merges layers, of which the most specific comes first. It is associative, and
// a layer merged with itself is that layer.
func Join(layers ...Merged) Merged {
	if len(layers) == 1 {
		return layers[0]
	}
	var m Merged
	index := make(map[string]int)
	for _, layer := range layers {
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

// complete takes the fields that r does not have from a less specific rule.
func (r *MergedRule) complete(below MergedRule) {
	for _, o := range below.MatchesFrom {
		if !slices.Contains(r.MatchesFrom, o) {
			r.MatchesFrom = append(r.MatchesFrom, o)
		}
	}
	if r.Filters == nil {
		r.Filters, r.FiltersFrom = below.Filters, below.FiltersFrom
	}
	if r.BackendRefs == nil {
		r.BackendRefs, r.BackendRefsFrom = below.BackendRefs, below.BackendRefsFrom
	}
}

// Merged returns the rules of one part.
func (p Part) Merged() Merged {
	rules := p.Rules()
	m := Merged{Rules: make([]MergedRule, len(rules))}
	for i := range rules {
		r, from := &rules[i], Origin{p.Policy, p.To, i}
		m.Rules[i] = MergedRule{
			Matches: r.Matches, Filters: r.Filters, BackendRefs: r.BackendRefs, MatchesFrom: []Origin{from},
			matchesKey: r.matchesKey,
		}
		if r.Filters != nil {
			m.Rules[i].FiltersFrom = from
		}
		if r.BackendRefs != nil {
			m.Rules[i].BackendRefsFrom = from
		}
	}
	return m
}

// Route is one entry of a rule's matches.
type Route struct {
	Match *Match
	// Rule is nil for the one that matches what no rule does: such requests go to the
	// service itself.
	Rule *MergedRule
	// Unreachable says that an earlier route takes all requests.
	Unreachable bool
}

// Routes returns the entries of all rules in the order in which they are tried. The
// last one matches everything; if no rule does, it is one without a rule.
func (m Merged) Routes() []Route {
	var list []Route
	for i := range m.Rules {
		for j := range m.Rules[i].Matches {
			list = append(list, Route{Match: &m.Rules[i].Matches[j], Rule: &m.Rules[i]})
		}
	}
	slices.SortStableFunc(list, func(a, b Route) int { return compareMatches(a.Match, b.Match) })
	last := slices.IndexFunc(list, func(r Route) bool { return r.Match.all() })
	if last < 0 {
		return append(list, Route{Match: &Match{Path: everyPath}})
	}
	for i := last + 1; i < len(list); i++ {
		list[i].Unreachable = true
	}
	return list
}
