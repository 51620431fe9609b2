package controlplane_test

import (
	"testing"

	"github.com/dynxds/dynxds/controlplane"
)

// A program that depends on all subscribers is notified when they change.
func TestOnDemand_SubscribedOnlyBy(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
		s := startServer(t)
		src := newSource(t, s.store, eds)
		open(s).subscribe(eds, "a")
		d := src.wantBegun("a")[0]
		first := s.control.Clients()[0].ID
		told := make(chan struct{}, 10)
		only := func(want bool, ids ...uint64) map[uint64]struct{} {
			t.Helper()
			streams := map[uint64]struct{}{}
			for _, id := range ids {
				streams[id] = struct{}{}
			}
			if got := d.SubscribedOnlyBy(streams, func() { told <- struct{}{} }); got != want {
				t.Errorf("subscribed only by %v: got %v, want %v", ids, got, want)
			}
			return streams
		}
		only(true, first)
		only(false)
		two := open(s)
		two.subscribe(eds, "a", "b")
		src.wantBegun("b")
		receive(t, told)
		only(false, first)
		second := s.control.Clients()[1].ID
		only(true, first, second)
		if left := only(true, 7, first, 8, 9, second); len(left) != 2 {
			t.Errorf("%v are left, want the two subscribers", left)
		}
		two.drop(eds, []string{"b"}, "a")
		receive(t, told)
		only(true, first)
		if len(told) > 0 {
			t.Error("the function was called more than once")
		}
	})
}
