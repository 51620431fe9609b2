package meshroute

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

// The variants of a RouteConfiguration are the leaves of a decision diagram over the tags of clients: a
// node tests one tag, and has a branch for each value in a policy and one for all other values. All
// paths test tags in one order, the namespace and the service first. Nodes with equal branches are omitted, and equal
// nodes are shared. Such a diagram is canonical: it is equal for equal functions of the tags, and tests
// only tags that make a difference, so its tags are the smallest set that distinguishes the variants.
//
// A path is described by its values, without "all other values". Several paths may then fit one client:
// {service=frontend}, {version=v1} and {} all fit frontend v1. The right one prefers a value to "all
// others" at each node. It has the largest number if each tag is a bit, higher for tags tested earlier.
// This number is the parameter specificity.

const (
	// maxVariants bounds the variants of one RouteConfiguration, and so its time and memory.
	maxVariants = 4096
	// maxRules bounds the rules in all variants of one RouteConfiguration.
	maxRules = 1 << 18
	// maxTags bounds the tags of one RouteConfiguration, as specificity has a bit for each;
	// maxAllTags those of all.
	maxTags, maxAllTags = 60, 120
)

// outcome is a leaf's result: routes or an error.
type outcome struct {
	routes *routepb.RouteConfiguration
	// rules are the rules of the routes, in their order. A route has several if it is made of one
	// for some clients, and of another one for others.
	rules [][]ruleRef
	err   *status.Status
}

// node is a leaf if outcome is set.
type node struct {
	id      int
	outcome *outcome
	// key is the tag to test.
	key      string
	branches map[string]*node
	other    *node
	// Leaves of the unfolded tree, which are not shared, have a resource or are absorbed by
	// another leaf with the same outcome. regions are the clients that get the resource.
	resource   *Resource
	absorbedBy *node
	regions    []region
}

// find returns the resource for a client.
func (n *node) find(c Client) *Resource {
	for n.outcome == nil {
		next, ok := n.branches[c.Tag(n.key)]
		if !ok {
			next = n.other
		}
		n = next
	}
	return n.owner().resource
}

// owner returns the leaf whose resource the clients of a leaf get.
func (n *node) owner() *node {
	for n.absorbedBy != nil {
		n = n.absorbedBy
	}
	return n
}

// conditionOf returns the tags that a policy requires of clients.
func conditionOf(r TargetRef) map[string]string {
	tags := maps.Clone(r.Tags)
	if r.Name != "" {
		if tags == nil {
			tags = make(map[string]string, 1)
		}
		tags[meshpolicy.ServiceKey] = r.Name
	}
	return tags
}

// treeBuilder makes the diagram for one service.
type treeBuilder struct {
	conditions []map[string]string
	// keys are the tags in the order of testing.
	keys []string
	// leaf returns the outcome for clients that satisfy these conditions, a key that is equal for
	// equal outcomes, and the number of its rules.
	leaf func(holding []int) (o *outcome, key string, rules int)

	memo   map[string]*node
	leaves map[string]*node
	nodes  map[string]*node
	// made counts leaves, and ruled the rules in them: at most variants and rules.
	made, ruled     int
	variants, rules int
}

// build returns the diagram, or false if it would be too large.
func (b *treeBuilder) build() (*node, bool) {
	b.memo, b.leaves, b.nodes = make(map[string]*node), make(map[string]*node), make(map[string]*node)
	tags := make(map[string]bool)
	holding := make([]int, len(b.conditions))
	for i, c := range b.conditions {
		holding[i] = i
		for key := range c {
			tags[key] = true
		}
	}
	b.keys = slices.SortedFunc(maps.Keys(tags), compareKeys)
	if len(b.keys) > maxTags {
		return nil, false
	}
	root := b.node(0, holding)
	return root, root != nil
}

// compareKeys puts the namespace first, so that the policies for the clients of one make no leaves for those of others, and then
// the service.
func compareKeys(a, b string) int {
	rank := func(key string) int {
		switch key {
		case meshpolicy.NamespaceTag:
			return 0
		case meshpolicy.ServiceKey:
			return 1
		}
		return 2
	}
	return cmp.Or(rank(a)-rank(b), strings.Compare(a, b))
}

// node returns the node for clients whose tags before the level were tested, and which may still
// satisfy these conditions. It returns nil if a bound is exceeded.
func (b *treeBuilder) node(level int, holding []int) *node {
	for level < len(b.keys) && !b.asks(b.keys[level], holding) {
		level++
	}
	if level == len(b.keys) {
		return b.end(holding)
	}
	memo := stateKey(level, holding)
	if n, ok := b.memo[memo]; ok {
		return n
	}
	n := b.split(level, holding)
	b.memo[memo] = n
	return n
}

// asks reports whether one of the conditions has the tag.
func (b *treeBuilder) asks(key string, holding []int) bool {
	return slices.ContainsFunc(holding, func(i int) bool {
		_, ok := b.conditions[i][key]
		return ok
	})
}

func (b *treeBuilder) end(holding []int) *node {
	if b.made++; b.made > b.variants {
		return nil
	}
	o, key, rules := b.leaf(holding)
	if b.ruled += rules; b.ruled > b.rules {
		return nil
	}
	n, ok := b.leaves[key]
	if !ok {
		n = &node{id: len(b.leaves) + len(b.nodes), outcome: o}
		b.leaves[key] = n
		return n
	}
	for i, refs := range o.rules {
		for _, ref := range refs {
			if !slices.Contains(n.outcome.rules[i], ref) {
				n.outcome.rules[i] = append(n.outcome.rules[i], ref)
			}
		}
	}
	return n
}

func (b *treeBuilder) split(level int, holding []int) *node {
	key := b.keys[level]
	var neutral []int
	byValue := make(map[string][]int)
	for _, i := range holding {
		if value, ok := b.conditions[i][key]; ok {
			byValue[value] = append(byValue[value], i)
		} else {
			neutral = append(neutral, i)
		}
	}
	n := &node{key: key, branches: make(map[string]*node, len(byValue))}
	if n.other = b.node(level+1, neutral); n.other == nil {
		return nil
	}
	for _, value := range slices.Sorted(maps.Keys(byValue)) {
		branch := b.node(level+1, mergeSorted(neutral, byValue[value]))
		if branch == nil {
			return nil
		}
		if branch != n.other {
			n.branches[value] = branch
		}
	}
	if len(n.branches) == 0 {
		return n.other
	}
	return b.share(n)
}

// share returns an existing node that is equal to n, or n.
func (b *treeBuilder) share(n *node) *node {
	var key strings.Builder
	key.WriteString(n.key)
	number := func(id int) { key.Write(binary.AppendUvarint([]byte{0}, uint64(id))) }
	number(n.other.id)
	for _, value := range slices.Sorted(maps.Keys(n.branches)) {
		key.WriteString("\x00" + value)
		number(n.branches[value].id)
	}
	if same, ok := b.nodes[key.String()]; ok {
		return same
	}
	n.id = len(b.leaves) + len(b.nodes)
	b.nodes[key.String()] = n
	return n
}

func stateKey(level int, holding []int) string {
	key := binary.AppendUvarint(make([]byte, 0, 2+2*len(holding)), uint64(level))
	for _, i := range holding {
		key = binary.AppendUvarint(key, uint64(i))
	}
	return string(key)
}

func mergeSorted(a, b []int) []int {
	merged := slices.Concat(a, b)
	slices.Sort(merged)
	return merged
}

// tooMany is the outcome for a service with more than maxVariants variants. It is transient: clients
// keep the routes that they have.
func tooMany() *outcome {
	return &outcome{err: status.Newf(codes.ResourceExhausted,
		"the policies for this service tell apart more than %d kinds of clients", maxVariants)}
}
