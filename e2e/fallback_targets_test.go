package e2e_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/testutils"
)

// gRFC A71: the fallback is per target. While the primary is down, a channel that has all it
// needs goes on by the primary's configuration, and one of the same process that is dialled
// then works by the secondary's, though both have a cluster of the same name. When the primary
// is back both are with it. No RPC fails.
func TestOneTargetFallsBackAndTheOtherStays(t *testing.T) {
	overLinks(t, oneTargetFallsBackAndTheOtherStays)
}

func oneTargetFallsBackAndTheOtherStays(t *testing.T) {
	t.Parallel()
	const other = "other.service"
	p := newPair(t)
	fromHigh, fromLow := testutils.StartBackend(t, "high"), testutils.StartBackend(t, "low")
	for m, backend := range map[*mesh]*testutils.Backend{p.high: fromHigh, p.low: fromLow} {
		m.serve(service, "shared", backend)
		m.serve(other, "shared", backend)
	}
	b, err := resolver.NewBuilder(p.high.bootstrap(testutils.FurtherServer(p.low.Addr(), p.low.features...)))
	if err != nil {
		t.Fatal(err)
	}
	stays := dial(t, "xds:///"+service, grpc.WithResolvers(b))
	mustReach(t, stays, unary, fromHigh)
	load := startLoad(t, stays)
	load.await(t, fromHigh)

	p.high.RefuseStreams(errors.New("not now"))
	attempts := p.high.Attempts()
	p.high.BreakStreams(nil)
	if err := p.high.WaitAttempts(testutils.Context(t), attempts+2); err != nil {
		t.Fatal(err)
	}
	falls := dial(t, "xds:///"+other, grpc.WithResolvers(b))
	mustReach(t, falls, unary, fromLow)
	loadOfOther := startLoad(t, falls)
	loadOfOther.await(t, fromLow)
	// The secondary's word on what they share is not for the channel that stays.
	again := testutils.StartBackend(t, "low again")
	p.low.set(clusterOf("shared", again)...)
	loadOfOther.await(t, again)
	load.await(t, fromHigh)
	if n := p.low.Attempts(); n != 1 {
		t.Errorf("%d streams were opened at the secondary, want 1", n)
	}

	p.high.RefuseStreams(nil)
	loadOfOther.await(t, fromHigh)
	loadOfOther.stop(t)
	load.stop(t)
	if err := p.low.WaitOpen(testutils.Context(t), 0); err != nil {
		t.Errorf("the secondary is still in use: %v", err)
	}
}
