package meshroute

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// variants is the unfolded decision tree of one service and the resources of its leaves.
type variants struct {
	root *node
	// keys are the tags that the tree tests, in the order of testing.
	keys []string
	list []*Resource
	// leaves have the resources in list, in its order.
	leaves []*node
}

// leaf is a leaf of the unfolded tree.
type leaf struct {
	*node
	region
	specificity uint64
}

// region is the clients of a leaf, by the tags on the path to it.
type region struct {
	values map[string]string
	// others has the branches, by value, that were not taken for a tag.
	others map[string]map[string]*node
}

// unfold makes a resource for each leaf of a diagram. It returns false if there are more than most.
func unfold(name, service string, root *node, most int) (*variants, bool) {
	used := make(map[string]bool)
	root.collectKeys(used, make(map[*node]bool))
	v := &variants{keys: slices.SortedFunc(maps.Keys(used), compareKeys)}
	u := unfolding{most: most, bits: make(map[string]uint64, len(v.keys))}
	for i, key := range v.keys {
		u.bits[key] = 1 << (len(v.keys) - 1 - i)
	}
	if v.root = u.node(root, region{map[string]string{}, map[string]map[string]*node{}}, 0); v.root == nil {
		return nil, false
	}
	absorb(u.leaves)
	for _, l := range u.leaves {
		owner := l.owner()
		owner.regions = append(owner.regions, l.region)
		if l.absorbedBy != nil {
			continue
		}
		r, err := l.newResource(name, service, len(v.keys) > 0)
		if err != nil {
			return nil, false
		}
		l.resource = r
		v.list, v.leaves = append(v.list, r), append(v.leaves, l.node)
	}
	return v, true
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
	most   int
	bits   map[string]uint64
	leaves []leaf
}

// node copies the tree below a node, or returns nil if it is too large.
func (u *unfolding) node(n *node, at region, specificity uint64) *node {
	if n.outcome != nil {
		if len(u.leaves) == u.most {
			return nil
		}
		end := &node{outcome: n.outcome}
		u.leaves = append(u.leaves, leaf{end, region{maps.Clone(at.values), maps.Clone(at.others)}, specificity})
		return end
	}
	copied := &node{key: n.key, branches: make(map[string]*node, len(n.branches))}
	at.others[n.key] = n.branches
	copied.other = u.node(n.other, at, specificity)
	delete(at.others, n.key)
	if copied.other == nil {
		return nil
	}
	for _, value := range slices.Sorted(maps.Keys(n.branches)) {
		at.values[n.key] = value
		branch := u.node(n.branches[value], at, specificity|u.bits[n.key])
		delete(at.values, n.key)
		if branch == nil {
			return nil
		}
		copied.branches[value] = branch
	}
	return copied
}

func (l *leaf) newResource(name, service string, variants bool) (*Resource, error) {
	r := &Resource{TypeURL: RouteConfigurationType, Name: name, Service: service, Err: l.outcome.err}
	if l.outcome.routes != nil {
		r.Message = l.outcome.routes
	}
	if !variants {
		return r, nil
	}
	parameters := maps.Clone(l.values)
	parameters[meshpolicy.SpecificityKey] = strconv.FormatUint(l.specificity, 10)
	var err error
	r.Parameters, err = dynparam.NewParameters(parameters)
	return r, err
}

// absorb finds leaves without a resource of their own: their clients get an equal one from a less
// specific leaf. Without its resource, a client of the leaf gets that of the most specific other leaf
// that fits it. So there must be one that fits all clients of the leaf and has the same outcome, and
// every more specific one that fits some of them must have that outcome too. (These may be absorbed as
// well: then the same holds for all clients that they fit.)
func absorb(leaves []leaf) {
	groups := make(map[firstTags][]*leaf)
	for i := range leaves {
		of := leaves[i].firstTags()
		groups[of] = append(groups[of], &leaves[i])
	}
	for _, list := range groups {
		slices.SortStableFunc(list, func(a, b *leaf) int { return cmp.Compare(b.specificity, a.specificity) })
	}
	for i := range leaves {
		l := &leaves[i]
		// These tags have the highest bits, so that the order of the groups is that of specificity.
		of := l.firstTags()
		below := slices.Clip(groups[of])
		if of.service != "" {
			below = append(below, groups[firstTags{of.namespace, ""}]...)
		}
		if of.namespace != "" {
			if of.service != "" {
				below = append(below, groups[firstTags{"", of.service}]...)
			}
			below = append(below, groups[firstTags{}]...)
		}
		l.absorbedBy = l.coveredBy(below)
	}
}

// firstTags are the values of the tags that are tested first, empty for others and where they are not tested.
type firstTags struct{ namespace, service string }

func (l *leaf) firstTags() firstTags {
	return firstTags{l.values[meshpolicy.NamespaceTag], l.values[meshpolicy.ServiceKey]}
}

// coveredBy returns the leaf that absorbs l, or nil. The others are those that may fit its clients, the most specific first.
func (l *leaf) coveredBy(others []*leaf) *node {
	for _, o := range others {
		if o.specificity >= l.specificity {
			continue
		}
		fitsAll, fitsSome := l.compare(o)
		switch {
		case fitsSome && o.outcome != l.outcome:
			return nil
		case fitsAll:
			return o.node
		}
	}
	return nil
}

// compare reports whether another leaf's values fit all clients of l, and whether they fit some.
func (l *leaf) compare(o *leaf) (fitsAll, fitsSome bool) {
	fitsAll = true
	for key, value := range o.values {
		switch own, ok := l.values[key]; {
		case !ok:
			fitsAll = false
		case own != value:
			return false, false
		}
	}
	return fitsAll, true
}
