package resolver

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dynxds/dynxds/balancer"
	"github.com/dynxds/dynxds/xdsresource"
)

// maxClusterDepth is how many clusters there may be from an aggregate cluster to
// one with endpoints, both included (gRFC A37: "The tree of aggregate clusters
// has a depth limit of 16").
const maxClusterDepth = 16

// walk goes depth-first through the graph of clusters under an aggregate cluster
// and collects those with endpoints, each where it comes up first (gRFC A37).
// Members that are missing are started on the way. It costs as much as the graph
// has edges, however many paths there are in it.
type walk struct {
	node *clusterNode
	// path leads from the aggregate cluster to the one being visited.
	path []string
	// seen has all clusters visited; heights the number of clusters from each that
	// was left again down to the farthest below it.
	seen    map[string]bool
	heights map[string]int

	leaves   []balancer.Underlying
	complete bool // all of them have answered
	err      error
}

func newWalk(n *clusterNode) *walk {
	return &walk{node: n, seen: make(map[string]bool), heights: make(map[string]int), complete: true}
}

// visit returns the height of a cluster. It does nothing after an error.
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

// below visits what is under the cluster, and returns the greatest height there.
func (w *walk) below(name string) int {
	state := w.node.member(name).state
	secured := w.node.graph.mustSecure(state.Cluster)
	if c := state.Cluster; c == nil || c.Kind != xdsresource.ClusterAggregate || secured {
		// One that asks for security, which it cannot have, has nothing below it.
		w.leaves = append(w.leaves, balancer.Underlying{Name: name, State: state})
		w.complete = w.complete && (secured || w.node.graph.isKnown(state))
		return 0
	}
	most := 0
	for _, underlying := range state.Cluster.Underlying {
		most = max(most, w.visit(underlying))
	}
	return most
}

// fault is an error of the aggregate cluster, found on the step from the end of
// path to the cluster last.
func (w *walk) fault(last, what, remedy string) error {
	quoted := make([]string, 0, len(w.path)+1)
	for _, name := range append(slices.Clone(w.path), last) {
		quoted = append(quoted, strconv.Quote(name))
	}
	return fmt.Errorf("aggregate cluster %q %s: %s (node id %q); "+remedy,
		w.node.name, what, strings.Join(quoted, " → "), w.node.graph.client.Bootstrap().Node.GetId(), w.path[len(w.path)-1])
}
