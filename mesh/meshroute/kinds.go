package meshroute

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// Some parts of policies tell apart kinds of clients. A part is for clients with some tags, its condition, and a kind is the tags of
// one condition, or of several together:
//
//	parts for clients        kinds of clients
//	of zone a                {}, {zone=a}
//	on node n                {}, {zone=a}, {node=n}, {node=n,zone=a}
//	of zone b                and {zone=b}, {node=n,zone=b}
//
// Where authors are not to harm each other (Input.Separate), the parts of each are bounded by themselves: they ask for a variant of
// the routes to a service for each kind of clients, and for rules in each variant. Of an author's policies the oldest count.

// bound is for the policies of one author.
type bound struct{ kinds, rules int }

var (
	// perService is the bound at one service. widely is that of the parts for all services, each of which costs something at
	// every service.
	perService = bound{256, 1 << 16}
	widely     = bound{32, 512}
)

// kinds are the kinds of clients that some parts tell apart. There is one for all clients, and with any two that a client can be of
// that of both.
type kinds struct {
	list   []*kind
	byName map[string]*kind
}

// kind is the clients with some tags.
type kind struct {
	condition
	// parts are those for them, in the order in which they were added, and rules counts their rules.
	parts []*meshpolicy.To
	rules int
}

// noKinds are those without a part: all clients are of one kind.
func noKinds() *kinds {
	all := new(kind)
	return &kinds{list: []*kind{all}, byName: map[string]*kind{"": all}}
}

// add adds a part, unless a bound is exceeded.
func (k *kinds) add(p *meshpolicy.To, most bound) bool {
	of := conditionOf(p.Clients)
	fresh := k.joined(of)
	selected, total := fresh, 0
	for _, one := range k.list {
		if total += one.rules; one.implies(of) {
			selected = append(selected, one)
		}
	}
	for _, one := range fresh {
		total += one.rules
	}
	total += len(selected) * len(p.Rules)
	if len(k.list)+len(fresh) > most.kinds || total > most.rules {
		return false
	}
	k.take(fresh)
	for _, one := range selected {
		one.parts = append(one.parts, p)
		one.rules += len(p.Rules)
	}
	return true
}

func (k *kinds) take(fresh []*kind) {
	for _, one := range fresh {
		k.byName[one.String()] = one
	}
	k.list = append(k.list, fresh...)
}

// joined returns the kinds that a condition adds.
func (k *kinds) joined(of condition) (fresh []*kind) {
	if k.byName[of.String()] != nil {
		return nil
	}
	byName := make(map[string]*kind)
	for _, one := range k.list {
		both, ok := one.and(of)
		if !ok {
			continue
		}
		name := both.String()
		if k.byName[name] != nil {
			continue
		}
		if byName[name] == nil {
			byName[name] = &kind{condition: both}
			fresh = append(fresh, byName[name])
		}
		// Of the kinds that amount to the same one, that which has most tags has all parts.
		if same := byName[name]; len(one.parts) >= len(same.parts) {
			same.parts, same.rules = slices.Clip(one.parts), one.rules
		}
	}
	return fresh
}

// conditions are those of the kinds.
func (k *kinds) conditions() (list []condition) {
	for _, one := range k.list {
		list = append(list, one.condition)
	}
	return list
}

// sort orders the kinds from the least to the most specific one.
func (k *kinds) sort(keys []string) {
	slices.SortFunc(k.list, func(a, b *kind) int {
		byValue := func(a, b tag) int { return strings.Compare(a.value, b.value) }
		return cmp.Or(cmp.Compare(a.specificity(keys), b.specificity(keys)), slices.CompareFunc(a.condition, b.condition, byValue))
	})
}

// admit returns the parts with which each author keeps the bound, and the others.
func admit(parts []*meshpolicy.To, most bound) (admitted, others []*meshpolicy.To) {
	byAuthor := make(map[string]*kinds)
	oldest := slices.SortedFunc(slices.Values(parts), func(a, b *meshpolicy.To) int {
		return cmp.Or(cmp.Compare(a.Policy.Created, b.Policy.Created), strings.Compare(a.Policy.Name, b.Policy.Name), cmp.Compare(a.Index, b.Index))
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

func (b bound) String() string {
	return fmt.Sprintf("more than %d kinds of clients, or has more than %d rules for them together", b.kinds, b.rules)
}
