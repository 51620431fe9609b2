package xdstest

import (
	"sync"
	"testing"

	"github.com/dynxds/dynxds/testutils"
)

// State guards what a test waits for. The zero State is ready to use.
type State struct {
	mu      sync.Mutex
	changed chan struct{} // closed at the next change; nil while nothing waits
}

// Change calls f with the State locked. Waiters look again.
func (s *State) Change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// Await returns when ok, which is called with the State locked, returns true. It fails the
// test with what if that does not happen in time.
func (s *State) Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx := testutils.Context(t)
	for {
		s.mu.Lock()
		if ok() {
			s.mu.Unlock()
			return
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}
