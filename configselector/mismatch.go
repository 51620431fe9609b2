package configselector

import (
	"sync"

	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/filterchain"
)

var logger = boundlog.Component("dynxds")

// maxMismatches bounds what a channel logs, as the control plane chooses the names.
const maxMismatches = 100

// mismatched logs overrides that are for another type of filter than the one with their
// name, each kind once per channel.
type mismatched struct {
	mu     sync.Mutex
	logged map[mismatch]struct{}
}

type mismatch struct{ name, want, got string }

// log reports whether it has logged the mismatch.
func (m *mismatched) log(target string, in *filterchain.Instance, got string) bool {
	key := mismatch{in.Name, in.Type, got}
	m.mu.Lock()
	_, known := m.logged[key]
	if known || len(m.logged) >= maxMismatches {
		m.mu.Unlock()
		return false
	}
	if m.logged == nil {
		m.logged = make(map[mismatch]struct{})
	}
	m.logged[key] = struct{}{}
	m.mu.Unlock()
	logger.Warningf("%s: a route overrides HTTP filter %q with a configuration of the filter for %s; it is ignored, as the filter of that name is for %s",
		target, in.Name, got, in.Type)
	return true
}
