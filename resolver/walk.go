package resolver

import "github.com/dynxds/dynxds/internal/xdsresource"

// leaves are the clusters with endpoints under an aggregate cluster. It may be nil.
type leaves struct {
	names      []string        // in order of preference
	answered   map[string]bool // whether each of names has answered
	unanswered int
	seen       map[string]int // all clusters that the walk visited
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

// needs reports whether the list depends on a cluster, which may be an aggregate one.
func (l *leaves) needs(name string) bool {
	if l == nil {
		return false
	}
	_, seen := l.seen[name]
	return seen
}

// complete reports whether all have answered.
func (l *leaves) complete() bool { return l != nil && l.unanswered == 0 }

// newWalk returns a walk through the clusters under n. It starts members that are missing.
func newWalk(n *clusterNode) *xdsresource.UnderlyingWalk {
	return &xdsresource.UnderlyingWalk{Under: func(name string) []string { return under(n.startedMember(name).state) }}
}

// leavesOf returns the leaves that a walk has found.
func (n *clusterNode) leavesOf(w *xdsresource.UnderlyingWalk) *leaves {
	l := &leaves{answered: make(map[string]bool, len(w.Leaves)), seen: w.Heights}
	for _, name := range w.Leaves {
		l.add(name, n.graph.isKnown(n.member(name).state))
	}
	return l
}
