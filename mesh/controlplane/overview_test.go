package controlplane_test

import (
	"testing"

	"github.com/dynxds/dynxds/mesh/controlplane"
)

// What Overview returns of a stream is made once until the stream changes, whoever asks; it has some of the names, and
// their number.
func TestOverview_IsMadeOnceForAllViewers(t *testing.T) {
	eachProtocol(t, func(t *testing.T, _ controlplane.Protocol, open func(*testServer) *client) {
		s := startServer(t)
		for _, name := range many(51, "n") {
			s.set(t, assignment(name))
		}
		c := open(s)
		c.subscribe(eds, many(50, "n")...)
		c.next()
		c.fence()
		// The fence is answered before its own answer is counted: the stream is at rest when two overviews are the same.
		overview := func() *controlplane.TypeStatus {
			t.Helper()
			for _, of := range s.control.Overview() {
				for i := range of.Types {
					if of.Types[i].TypeURL == eds {
						return &of.Types[i]
					}
				}
			}
			t.Fatal("no client subscribes")
			return nil
		}
		atRest := func() *controlplane.TypeStatus {
			t.Helper()
			for ctx, last := testContext(t), overview(); ; {
				next := overview()
				if next == last {
					return next
				}
				if last = next; ctx.Err() != nil {
					t.Fatal("each overview is made again")
				}
			}
		}
		before := atRest()
		if before.NameCount != 50 || len(before.Names) != 20 {
			t.Errorf("%d names, of which %d are listed", before.NameCount, len(before.Names))
		}
		c.subscribe(eds, many(51, "n")...)
		c.next()
		c.fence()
		if after := atRest(); after == before || after.NameCount != 51 {
			t.Errorf("after a change: %d names", after.NameCount)
		}
	})
}
