package meshpolicy

import (
	"encoding/json"
	"slices"
)

// New completes a policy: it normalizes the matches of its rules, and computes the keys for merging and
// comparing policies. Its parts and rules are copies.
func New(p Policy) *Policy {
	p.To = slices.Clone(p.To)
	for i := range p.To {
		p.To[i].Policy = &p
		p.To[i].seal()
	}
	return &p
}

// MatchesKey is equal for rules with equal Matches.
func (r *Rule) MatchesKey() string { return r.matchesKey }

// Subsets are those with tags that the rules name, by the services in the rules. A service may have none.
func (t *To) Subsets() map[string]Subsets { return t.subsets }

func (t *To) seal() {
	t.Rules, t.subsets = slices.Clone(t.Rules), make(map[string]Subsets)
	for i := range t.Rules {
		r := &t.Rules[i]
		r.To, r.Index = t, i
		r.Matches = NormalizeMatches(r.Matches)
		r.matchesKey = Key(r.Matches)
		for ref := range r.References() {
			if t.subsets[ref.Name] == nil {
				t.subsets[ref.Name] = make(Subsets)
			}
			if len(ref.Tags) > 0 {
				t.subsets[ref.Name][ref.Subset()] = ref.Tags
			}
		}
	}
}

// Key returns a string that is equal for equal matches, or equal lists of them, only.
func Key(matches any) string {
	b, _ := json.Marshal(matches) // strings, and structs of these
	return string(b)
}
