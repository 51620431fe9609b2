package xdstest

import (
	"context"
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

// locked calls f with the State locked.
func (s *State) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Await returns when ok, which is called with the State locked, returns true. It fails the
// test with what if that does not happen in time.
func (s *State) Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if s.wait(testutils.Context(t), ok) != nil {
		t.Fatalf("timed out waiting for %s", what)
	}
}

// wait is Await that returns the context's error.
func (s *State) wait(ctx context.Context, ok func() bool) error {
	for {
		s.mu.Lock()
		if ok() {
			s.mu.Unlock()
			return nil
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
