package rpcmetrics

import (
	"maps"
	"sync"
	"sync/atomic"
)

const (
	// maxLabelSets bounds the combinations of labels in the process: a control plane that keeps
	// renaming its routes would fill the memory of plugins, which keep what they have seen.
	maxLabelSets = 2000
	// other stands for all further values.
	other = "other"
	// maxCluster bounds the label of a cluster, in bytes. A header of an RPC may name one that does not exist.
	maxCluster = 1 << 10
)

type labelKey struct{ target, route, cluster, priority string }

// labelSet is the values of labels that RPCs share, so that recording allocates none. It is
// immutable.
type labelSet struct {
	key     labelKey
	byRoute []string // target, route, cluster, priority
}

func newLabelSet(k labelKey) *labelSet {
	return &labelSet{k, []string{k.target, k.route, k.cluster, k.priority}}
}

// labelSets has the labelSets of the process. RPCs read it without a lock.
type labelSets struct {
	byKey atomic.Pointer[map[labelKey]*labelSet]
	mu    sync.Mutex // held to replace the map
}

var known labelSets

// get returns the labelSet of a key, or nil if there is no room for another one.
func (s *labelSets) get(k labelKey) *labelSet {
	if m := s.byKey.Load(); m != nil {
		if l := (*m)[k]; l != nil || len(*m) >= maxLabelSets {
			return l
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := make(map[labelKey]*labelSet)
	if before := s.byKey.Load(); before != nil {
		if l := (*before)[k]; l != nil || len(*before) >= maxLabelSets {
			return l
		}
		m = maps.Clone(*before)
	}
	l := newLabelSet(k)
	m[k] = l
	s.byKey.Store(&m)
	return l
}

// labels returns the labelSet for an RPC of the channel.
func (m *Recorder) labels(route, cluster, priority string) *labelSet {
	if len(cluster) > maxCluster {
		cluster = other
	}
	if l := known.get(labelKey{m.target, route, cluster, priority}); l != nil {
		return l
	}
	return m.others
}
