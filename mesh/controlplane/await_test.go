package controlplane_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// subscribed accepts streams that have asked for a RouteConfiguration.
func subscribed(name string) func(controlplane.ClientStatus) bool {
	return func(c controlplane.ClientStatus) bool {
		return slices.ContainsFunc(c.Types, func(ts controlplane.TypeStatus) bool {
			return ts.TypeURL == rds && slices.Contains(ts.Names, name)
		})
	}
}

// await calls Await beside the test, and returns once it has asked for each of the
// streams that there are.
func await(t *testing.T, s *testServer, ctx context.Context, ok func(controlplane.ClientStatus) bool) (left <-chan int) {
	t.Helper()
	streams := len(s.control.Clients())
	asked := make(chan struct{}, 100)
	result := make(chan int, 1)
	go func() {
		result <- s.control.Await(ctx, func(c controlplane.ClientStatus) bool {
			holds := ok(c)
			select {
			case asked <- struct{}{}:
			default:
			}
			return holds
		})
	}()
	for range streams {
		<-asked
	}
	return result
}

func wantLeft(t *testing.T, left <-chan int, want int) {
	t.Helper()
	select {
	case got := <-left:
		if got != want {
			t.Errorf("Await returned that %d streams are left, want %d", got, want)
		}
	case <-time.After(testTimeout):
		t.Fatal("Await does not return")
	}
}

// Await returns when each present stream satisfies the condition or has ended; streams that
// begin meanwhile do not count.
func TestAwait(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.set(t, xdsmsg.RouteConfig("a", "*"), xdsmsg.RouteConfig("b", "*"))
	sotw, delta, leaving := s.open(t), s.openDelta(t), s.open(t)
	sotw.subscribe(rds, "a")
	first := sotw.want(rds, "a")
	delta.subscribe(rds, "a")
	delta.ack(delta.want(rds, "a"))
	leaving.subscribe(rds, "a")
	leaving.ack(leaving.want(rds, "a"), "a")
	leaving.fence()
	delta.fence()

	left := await(t, s, t.Context(), subscribed("b"))
	late := s.open(t)
	late.subscribe(rds, "a")
	late.want(rds, "a")
	sotw.ack(first, "b")
	sotw.want(rds, "b")
	delta.subscribe(rds, "b")
	delta.want(rds, "b")
	select {
	case n := <-left:
		t.Fatalf("Await returned %d though a stream has not done what it waits for", n)
	default:
	}
	leaving.cancel()
	wantLeft(t, left, 0)
}

// Await returns at once where there is nothing to wait for, and the number of streams left when its context ends.
func TestAwaitReturns(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	wantLeft(t, await(t, s, t.Context(), subscribed("b")), 0)
	done := s.open(t)
	done.subscribe(rds, "b")
	done.fence()
	wantLeft(t, await(t, s, t.Context(), subscribed("b")), 0)
	for range 2 {
		s.open(t).fence()
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := await(t, s, ctx, subscribed("b"))
	cancel()
	wantLeft(t, left, 2)
}
