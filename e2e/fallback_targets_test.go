package e2e_test

import (
	"testing"

	"github.com/dynxds/dynxds/testutils"
)

// gRFC A71: the fallback is per target. While the primary is down, a channel that has all it
// needs goes on by the primary's configuration, and one of the same process that is dialled
// then works by the secondary's, though both have a cluster of the same name. When the primary
// is back both are with it. No RPC fails.
func TestOneTargetFallsBackAndTheOtherStays(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		const other = "other.service"
		p := newPair(t, "shared", "shared")
		p.high.serve(other, "shared", p.fromHigh)
		p.low.serve(other, "shared", p.fromLow)
		stays := p.dial("xds:///" + service)
		load := loadOn(t, stays, p.fromHigh)

		p.high.cutOff(2)
		falls := p.dial("xds:///" + other)
		loadOfOther := loadOn(t, falls, p.fromLow)
		// What the secondary says of the shared cluster is not for the channel that stays.
		again := testutils.StartBackend(t, "low again")
		p.low.set(clusterOf("shared", again)...)
		loadOfOther.await(t, again)
		load.await(t, p.fromHigh)
		if n := p.low.Attempts(); n != 1 {
			t.Errorf("%d streams were opened at the secondary, want 1", n)
		}

		p.high.RefuseStreams(nil)
		loadOfOther.await(t, p.fromHigh)
		loadOfOther.stop(t)
		load.stop(t)
		if err := p.low.WaitOpen(testutils.Context(t), 0); err != nil {
			t.Errorf("the secondary is still in use: %v", err)
		}
	})
}
