package meshroute

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// This file bounds what the policies of one author may ask for where authors are not to harm each other (Input.Separate): a
// variant of the routes to a service for each kind of clients, and rules in each variant. Of an author's policies the oldest
// count.
//
//	policies of one author           kinds of clients that they tell apart
//	for zone a                       {}, {zone=a}
//	and for node n                   {}, {zone=a}, {node=n}, {node=n,zone=a}
//	and for zone b                   and {zone=b}, {node=n,zone=b}

// bound is for the policies of one author.
type bound struct{ kinds, rules int }

var (
	// perService is the bound at one service. widely is that of the parts for all services, each of which costs something at
	// every service.
	perService = bound{256, 1 << 16}
	widely     = bound{32, 512}
)

// kinds are the kinds of clients that some parts tell apart: the tags of each, by a key for them, and the number of rules for it.
type kinds struct {
	tags  map[string]map[string]string
	rules map[string]int
	// full says that a bound was exceeded: further kinds are not added.
	full bool
}

// noKinds are those without a part: all clients are of one kind.
func noKinds() *kinds {
	return &kinds{tags: map[string]map[string]string{"": nil}, rules: map[string]int{}}
}

// add adds a part, unless a bound is exceeded.
func (k *kinds) add(p meshpolicy.Part, most bound) bool {
	condition := conditionOf(p.Policy.TargetRef)
	next := k
	if k.tags[meshpolicy.FormatTags(condition)] == nil && len(condition) > 0 {
		if k.full {
			return false
		}
		next = k.with(condition)
	}
	total := 0
	rules := make(map[string]int, len(next.tags))
	for key, tags := range next.tags {
		rules[key] = next.rules[key]
		if implies(tags, condition) {
			rules[key] += len(p.Rules())
		}
		total += rules[key]
	}
	if len(next.tags) > most.kinds || total > most.rules {
		k.full = true
		return false
	}
	k.tags, k.rules = next.tags, rules
	return true
}

// with returns the kinds with another condition.
func (k *kinds) with(condition map[string]string) *kinds {
	next := &kinds{tags: maps.Clone(k.tags), rules: maps.Clone(k.rules)}
	for key, tags := range k.tags {
		if disjoint(tags, condition) {
			continue
		}
		both := maps.Clone(condition)
		maps.Copy(both, tags)
		joined := meshpolicy.FormatTags(both)
		next.tags[joined] = both
		// Of the kinds that amount to the same one, that which has most tags has all rules of the parts before.
		next.rules[joined] = max(next.rules[joined], k.rules[key])
	}
	return next
}

// admit returns the parts with which each author keeps the bound, and the others.
func admit(parts []meshpolicy.Part, most bound) (admitted, others []meshpolicy.Part) {
	byAuthor := make(map[string]*kinds)
	oldest := slices.SortedFunc(slices.Values(parts), func(a, b meshpolicy.Part) int {
		return cmp.Or(cmp.Compare(a.Policy.Created, b.Policy.Created), strings.Compare(a.Policy.Name, b.Policy.Name), cmp.Compare(a.To, b.To))
	})
	for _, p := range oldest {
		of := byAuthor[p.Policy.Author]
		if of == nil {
			of = noKinds()
			byAuthor[p.Policy.Author] = of
		}
		if of.add(p, most) {
			admitted = append(admitted, p)
		} else {
			others = append(others, p)
		}
	}
	return admitted, others
}

// admitWide leaves out the parts for all services that exceed their bound.
func (b *builder) admitWide() {
	var others []meshpolicy.Part
	b.parts[""], others = admit(b.parts[""], widely)
	for _, p := range others {
		f := finding{severity: Error, policy: p.Policy.Name, to: p.To, rule: -1, leftOut: true,
			message: "this has no effect: with the older policies of the same namespace for all Services it tells apart " + widely.String()}
		b.mesh.reports = append(b.mesh.reports, f.at(p.Policy))
	}
}

// admitAt returns the parts for one service that count there, and those beyond the bound. wide are those for all services.
func (b *builder) admitAt(wide, parts []meshpolicy.Part) (admitted, others []meshpolicy.Part) {
	all := slices.Concat(wide, parts)
	if !b.in.Separate || isFew(parts) {
		return all, nil
	}
	return admit(all, perService)
}

// isFew reports whether so few parts, beside those for all services, cannot exceed the bound: the most frequent case.
func isFew(parts []meshpolicy.Part) bool {
	most, rules := 1, 0
	conditions := make(map[string]bool)
	for _, p := range parts {
		rules += len(p.Rules())
		if key := p.Policy.TargetKey(); len(conditionOf(p.Policy.TargetRef)) > 0 && !conditions[key] {
			conditions[key] = true
			most = min(2*most, perService.kinds+1)
		}
	}
	most *= widely.kinds
	return most <= perService.kinds && most*rules+widely.rules*most <= perService.rules
}

func (b bound) String() string {
	return fmt.Sprintf("more than %d kinds of clients, or has more than %d rules for them together", b.kinds, b.rules)
}
