package configselector

import (
	"sync"

	"google.golang.org/grpc/grpclog"
)

var logger = grpclog.Component("dynxds")

// maxMismatches bounds what a channel remembers to have logged, as it is the
// control plane that chooses the names.
const maxMismatches = 100

// mismatched logs overrides that are not for the filter under whose name they
// are, each kind once for the channel.
type mismatched struct {
	mu   sync.Mutex
	told map[mismatch]struct{}
}

type mismatch struct{ name, want, got string }

// tell reports whether it has logged anything.
func (m *mismatched) tell(target string, in *instance, got string) bool {
	key := mismatch{in.name, in.typeURL, got}
	m.mu.Lock()
	_, known := m.told[key]
	if known || len(m.told) >= maxMismatches {
		m.mu.Unlock()
		return false
	}
	if m.told == nil {
		m.told = make(map[mismatch]struct{})
	}
	m.told[key] = struct{}{}
	m.mu.Unlock()
	logger.Warningf("%s: a route overrides HTTP filter %q with a configuration of the filter for %s; it is ignored, as the filter of that name is for %s",
		target, in.name, got, in.typeURL)
	return true
}
