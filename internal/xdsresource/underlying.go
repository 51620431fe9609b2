package xdsresource

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/bounds"
)

// maxClusterDepth bounds the path from an aggregate cluster to one with endpoints, both
// included (gRFC A37: "The tree of aggregate clusters has a depth limit of 16").
const maxClusterDepth = 16

// UnderlyingWalk visits the clusters under an aggregate cluster depth-first, each once (gRFC
// A37). Its cost is linear in the edges of the graph, however many paths there are.
type UnderlyingWalk struct {
	// Under returns the clusters under a cluster. Empty: the cluster has endpoints of its own,
	// or is not known.
	Under func(name string) []string
	// Leaves are those without clusters under them, in order of preference.
	Leaves []string

	path    []string       // from the aggregate cluster to the one being visited
	heights map[string]int // of the clusters visited: the number of clusters on the longest path down from each
}

// Visit visits a cluster and those below it. After an error the walk cannot be used.
func (w *UnderlyingWalk) Visit(name string) *UnderlyingError {
	height, visited := w.heights[name]
	switch {
	case slices.Contains(w.path, name):
		return w.fault(name, "leads back to cluster "+bounds.Quote(name), "take that out of the clusters of %s")
	case len(w.path)+max(height, 1) > maxClusterDepth:
		return w.fault(name, fmt.Sprintf("has more than %d clusters below each other", maxClusterDepth), "have %s name clusters with endpoints")
	case visited:
		return nil
	}
	if w.heights == nil {
		w.heights = make(map[string]int)
	}
	w.path = append(w.path, name)
	w.heights[name] = 0
	under := w.Under(name)
	for _, below := range under {
		if err := w.Visit(below); err != nil {
			return err
		}
		height = max(height, w.heights[below])
	}
	if len(under) == 0 {
		w.Leaves = append(w.Leaves, name)
	}
	w.heights[name] = height + 1
	w.path = w.path[:len(w.path)-1]
	return nil
}

// An UnderlyingError is an error in the graph of clusters under an aggregate cluster.
type UnderlyingError struct {
	// Path leads from the aggregate cluster to the one at fault.
	Path []string
	// What is wrong, and what to do about it.
	What, Remedy string
}

// Error names the path and the way out.
func (e *UnderlyingError) Error() string { return e.ErrorFor("") }

// ErrorFor is like Error, and puts context, unless it is empty, behind the path.
func (e *UnderlyingError) ErrorFor(context string) string {
	quoted := make([]string, len(e.Path))
	for i, name := range e.Path {
		quoted[i] = bounds.Quote(name)
	}
	return fmt.Sprintf("aggregate cluster %s %s: %s%s; %s", bounds.Quote(e.Path[0]), e.What, strings.Join(quoted, " → "), context, e.Remedy)
}

// fault returns an error of the way from the start of path to the cluster last.
func (w *UnderlyingWalk) fault(last, what, remedy string) *UnderlyingError {
	return &UnderlyingError{
		Path: append(slices.Clone(w.path), last), What: what, Remedy: fmt.Sprintf(remedy, bounds.Quote(w.path[len(w.path)-1])),
	}
}
