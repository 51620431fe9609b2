package meshroute

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// What building a mesh needs to know of a policy is computed once, when it is read:
// policies are merged and compared many times.

func (p *Policy) seal() {
	p.targetKey = keyOf(p.TargetRef)
	for i := range p.To {
		p.To[i].seal()
	}
}

// seal computes the keys of the rules, the digest, and what the rules refer to.
func (t *To) seal() {
	h := sha256.New()
	refer := func(ref *BackendRef) {
		t.services = append(t.services, ref.Name)
		if len(ref.Tags) > 0 {
			t.subsets = append(t.subsets, ref.subset())
		}
	}
	h.Write([]byte(keyOf(t.TargetRef)))
	for i := range t.Rules {
		r := &t.Rules[i]
		r.matchesKey = keyOf(r.Matches)
		// A list that is empty differs from one that is not there.
		h.Write([]byte("\n" + r.matchesKey + keyOf(r.Filters) + keyOf(r.BackendRefs)))
		for j := range r.BackendRefs {
			refer(&r.BackendRefs[j])
		}
		for j := range r.Filters {
			if mirror := r.Filters[j].Mirror; mirror != nil {
				refer(mirror)
			}
		}
	}
	t.digest = hex.EncodeToString(h.Sum(nil))
	slices.Sort(t.services)
	t.services = slices.Compact(t.services)
	slices.SortFunc(t.subsets, func(a, b subset) int { return strings.Compare(a.id, b.id) })
	t.subsets = slices.CompactFunc(t.subsets, func(a, b subset) bool { return a.id == b.id })
}
