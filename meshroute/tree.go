package meshroute

import (
	"maps"
	"slices"
	"strconv"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// variants is the decision tree of one service, unfolded: each leaf is a resource of
// its own.
type variants struct {
	root *node
	// keys are the tags that make a difference, in the order in which they are
	// asked for.
	keys []string
	// list has the resources of the leaves.
	list []*Resource
}

// unfold makes resources of the leaves of a diagram. It returns false if there are
// more than MaxVariants.
func unfold(name string, root *node) (*variants, bool) {
	used := make(map[string]bool)
	root.collectKeys(used, make(map[*node]bool))
	v := &variants{keys: slices.SortedFunc(maps.Keys(used), compareKeys)}
	u := unfolding{variants: v, name: name, bits: make(map[string]uint64)}
	for i, key := range v.keys {
		u.bits[key] = 1 << (len(v.keys) - 1 - i)
	}
	v.root = u.node(root, map[string]string{}, 0)
	return v, v.root != nil
}

func (n *node) collectKeys(keys map[string]bool, seen map[*node]bool) {
	if n.outcome != nil || seen[n] {
		return
	}
	seen[n] = true
	keys[n.key] = true
	n.other.collectKeys(keys, seen)
	for _, branch := range n.branches {
		branch.collectKeys(keys, seen)
	}
}

type unfolding struct {
	*variants
	name string
	bits map[string]uint64
}

// node copies what is below a node. values are those on the way to it.
func (u *unfolding) node(n *node, values map[string]string, specificity uint64) *node {
	if n.outcome != nil {
		return u.leaf(n, values, specificity)
	}
	copied := &node{key: n.key, branches: make(map[string]*node, len(n.branches))}
	if copied.other = u.node(n.other, values, specificity); copied.other == nil {
		return nil
	}
	for _, value := range slices.Sorted(maps.Keys(n.branches)) {
		values[n.key] = value
		branch := u.node(n.branches[value], values, specificity|u.bits[n.key])
		delete(values, n.key)
		if branch == nil {
			return nil
		}
		copied.branches[value] = branch
	}
	return copied
}

func (u *unfolding) leaf(n *node, values map[string]string, specificity uint64) *node {
	if len(u.list) == MaxVariants {
		return nil
	}
	r := &Resource{TypeURL: RouteConfigurationType, Name: u.name, Err: n.outcome.err}
	if n.outcome.routes != nil {
		r.Message = n.outcome.routes
	}
	if len(u.keys) > 0 {
		parameters := maps.Clone(values)
		parameters[SpecificityKey] = strconv.FormatUint(specificity, 10)
		var err error
		if r.Parameters, err = dynparam.NewParameters(parameters); err != nil {
			return nil
		}
	}
	u.list = append(u.list, r)
	return &node{outcome: n.outcome, resource: r}
}
