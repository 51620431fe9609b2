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

// labels are the values of the labels byRoute. RPCs share them, so that recording allocates none.
type labels [4]string

// labelSets has the labels of the process. RPCs read it without a lock.
type labelSets struct {
	shared atomic.Pointer[map[labels]*labels]
	mu     sync.Mutex // held to replace the map
}

var known labelSets

// get returns the labels that are shared, or nil if there is no room for another one.
func (s *labelSets) get(l labels) *labels {
	if before := s.shared.Load(); before != nil {
		if found := (*before)[l]; found != nil || len(*before) >= maxLabelSets {
			return found
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := make(map[labels]*labels)
	if before := s.shared.Load(); before != nil {
		if found := (*before)[l]; found != nil || len(*before) >= maxLabelSets {
			return found // Another RPC was first: those that waited for it must not copy the map, too.
		}
		now = maps.Clone(*before)
	}
	kept := l // l itself stays on the stack
	now[l] = &kept
	s.shared.Store(&now)
	return &kept
}

// labels returns the labels for an RPC of the channel.
func (m *Recorder) labels(route, cluster, priority string) *labels {
	if len(cluster) > maxCluster {
		cluster = other
	}
	if l := known.get(labels{m.target, route, cluster, priority}); l != nil {
		return l
	}
	return &m.others
}
