// Package await has what tests, and the servers for them, wait for: a state that is looked at again when it changes, so that nobody
// sleeps.
package await

import (
	"context"
	"sync"
	"testing"
	"time"
)

// State guards what is waited for. The zero State is ready to use.
type State struct {
	mu      sync.Mutex
	changed chan struct{} // closed at the next change; nil while nobody was given it
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

// Look calls f with the State locked.
func (s *State) Look(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Next calls f with the State locked, and returns a channel that is closed at the next change.
func (s *State) Next(f func()) (changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// Wait returns when ok, which is called with the State locked, returns true, or the context's error if that ends before.
func (s *State) Wait(ctx context.Context, ok func() bool) error {
	for {
		done := false
		changed := s.Next(func() { done = ok() })
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Await is Wait that fails the test with what if that does not happen within 2 minutes, which only a test that hangs takes.
func (s *State) Await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if s.Wait(ctx, ok) != nil {
		t.Fatalf("timed out waiting for %s", what)
	}
}
