package meshpolicy

import (
	"encoding/json"
	"slices"
	"strings"
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

// Services are the names of services in the rules, in order, each once.
func (t *To) Services() []string { return t.services }

// Subsets are the subsets in the rules that have tags, ordered by id, each once.
func (t *To) Subsets() []Subset { return t.subsets }

func (t *To) seal() {
	t.Rules, t.services, t.subsets = slices.Clone(t.Rules), nil, nil
	for i := range t.Rules {
		r := &t.Rules[i]
		r.To, r.Index = t, i
		r.Matches = NormalizeMatches(r.Matches)
		r.matchesKey = Key(r.Matches)
		for ref := range r.References() {
			t.services = append(t.services, ref.Name)
			if len(ref.Tags) > 0 {
				t.subsets = append(t.subsets, ref.Subset())
			}
		}
	}
	slices.Sort(t.services)
	t.services = slices.Compact(t.services)
	slices.SortFunc(t.subsets, func(a, b Subset) int { return strings.Compare(a.ID, b.ID) })
	t.subsets = slices.CompactFunc(t.subsets, func(a, b Subset) bool { return a.ID == b.ID })
}

// Key returns a string that is equal for equal parts of policies only. Only exported fields count.
func Key(part any) string {
	b, err := json.Marshal(part)
	if err != nil {
		panic(err) // impossible for strings, numbers, and structs and maps of these
	}
	return string(b)
}
