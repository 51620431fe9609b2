package resolver

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxClusterDepth bounds the path from an aggregate cluster to one with endpoints, both
// included (gRFC A37: "The tree of aggregate clusters has a depth limit of 16").
const maxClusterDepth = 16

// walk visits the clusters under an aggregate cluster depth-first and collects those with
// endpoints, each at its first occurrence (gRFC A37). It starts members that are missing.
// Its cost is linear in the edges of the graph, however many paths there are.
type walk struct {
	node    *clusterNode
	path    []string        // from the aggregate cluster to the one being visited
	seen    map[string]bool // the clusters visited
	heights map[string]int  // of the clusters that were left again
	leaves  *leaves
	err     error
}

// leaves are the clusters with endpoints under an aggregate cluster. It may be nil.
type leaves struct {
	names      []string        // in order of preference
	answered   map[string]bool // whether each of names has answered
	unanswered int
	seen       map[string]bool // all clusters that the walk visited
}

func (l *leaves) add(name string, answered bool) {
	l.names = append(l.names, name)
	l.answered[name] = answered
	if !answered {
		l.unanswered++
	}
}

// answer records whether a cluster has answered, if it is one of l.
func (l *leaves) answer(name string, answered bool) {
	if l == nil || !l.has(name) || l.answered[name] == answered {
		return
	}
	l.answered[name] = answered
	if answered {
		l.unanswered--
	} else {
		l.unanswered++
	}
}

func (l *leaves) has(name string) bool {
	_, ok := l.answered[name]
	return ok
}

// complete reports whether all have answered.
func (l *leaves) complete() bool { return l != nil && l.unanswered == 0 }

func newWalk(n *clusterNode) *walk {
	seen := make(map[string]bool)
	return &walk{node: n, seen: seen, heights: make(map[string]int), leaves: &leaves{answered: make(map[string]bool), seen: seen}}
}

// visit returns the height of a cluster: the number of clusters on the longest path down from
// it. It does nothing after an error.
func (w *walk) visit(name string) int {
	height, visited := w.heights[name]
	switch {
	case w.err != nil:
		return 0
	case slices.Contains(w.path, name):
		w.err = w.fault(name, fmt.Sprintf("leads back to cluster %q", name), "take that out of the clusters of %q")
		return 0
	case len(w.path)+max(height, 1) > maxClusterDepth:
		w.err = w.fault(name, fmt.Sprintf("has more than %d clusters below each other", maxClusterDepth), "have %q name clusters with endpoints")
		return 0
	case visited:
		return height
	}
	w.path = append(w.path, name)
	w.seen[name] = true
	height = w.below(name) + 1
	w.heights[name] = height
	w.path = w.path[:len(w.path)-1]
	return height
}

// below visits the clusters under a cluster, and returns the greatest height.
func (w *walk) below(name string) int {
	state := w.node.member(name).state
	underlying := under(state)
	if underlying == nil {
		w.leaves.add(name, w.node.graph.isKnown(state))
		return 0
	}
	most := 0
	for _, underlying := range underlying {
		most = max(most, w.visit(underlying))
	}
	return most
}

// fault returns an error of the aggregate cluster, found on the way from the end of path to
// the cluster last.
func (w *walk) fault(last, what, remedy string) error {
	quoted := make([]string, 0, len(w.path)+1)
	for _, name := range append(slices.Clone(w.path), last) {
		quoted = append(quoted, strconv.Quote(name))
	}
	return fmt.Errorf("aggregate cluster %q %s: %s (node id %q); "+remedy,
		w.node.name, what, strings.Join(quoted, " → "), w.node.graph.client.Bootstrap().Node.GetId(), w.path[len(w.path)-1])
}
