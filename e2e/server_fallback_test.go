package e2e_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// pair is a preferred control plane and one to fall back to (gRFC A71), and the backends
// that they send RPCs to.
type pair struct {
	high, low         *mesh
	fromHigh, fromLow *testutils.Backend
}

// newPair starts a pair, each with a cluster of the given name.
func newPair(t testing.TB, high, low string) pair {
	p := pair{newMesh(t), newMesh(t), testutils.StartBackend(t, "high"), testutils.StartBackend(t, "low")}
	p.high.serve(service, high, p.fromHigh)
	p.low.serve(service, low, p.fromLow)
	return p
}

// dial opens a channel to the target with both control planes.
func (p pair) dial(target string) *grpc.ClientConn {
	t := p.high.t
	t.Helper()
	return dialWith(t, target, p.high.bootstrap(testutils.FurtherServer(p.low.Addr(), p.low.features...)))
}

// gRFC A71: with the primary down at the start, RPCs use the secondary's resources; when it
// is up they use the primary's, and none fails.
func TestRPCsFallBackAndReturn(t *testing.T) {
	directly(t, "several management servers, and the relay is one")
	overLinks(t, func(t *testing.T) {
		p := newPair(t, "cluster-high", "cluster-low")
		p.high.Stop()
		cc := p.dial("xds:///" + service)
		load := loadOn(t, cc, p.fromLow)
		p.high.restart()
		load.await(t, p.fromHigh)
		load.stop(t)
		if err := p.low.WaitOpen(testutils.Context(t), 0); err != nil {
			t.Errorf("the secondary is still in use: %v", err)
		}
	})
}

// The same, where both control planes use the same names (config tears are
// possible, failed RPCs are not).
func TestRPCsFallBackAndReturnWithTheSameNames(t *testing.T) {
	directly(t, "several management servers, and the relay is one")
	overLinks(t, func(t *testing.T) {
		p := newPair(t, "cluster", "cluster")
		p.high.RefuseStreams(errors.New("not now"))
		cc := p.dial("xds:///" + service)
		load := loadOn(t, cc, p.fromLow)
		p.high.RefuseStreams(nil)
		load.await(t, p.fromHigh)
		load.stop(t)
	})
}

// gRFC A71: cached resources stay in use, and the secondary is not contacted.
func TestRPCsStayWhenThePrimaryIsLostLater(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		p := newPair(t, "cluster", "cluster")
		cc := p.dial("xds:///" + service)
		load := loadOn(t, cc, p.fromHigh)
		p.high.cutOff(2)
		load.await(t, p.fromHigh)
		load.stop(t)
		if n := p.low.Attempts(); n != 0 {
			t.Errorf("%d streams were opened at the secondary", n)
		}
	})
}

// gRFC A71: "mid-config update, such as when the control plane sends an updated
// RDS resource that points to a new cluster, but then the control plane becomes
// unavailable before the new CDS resources can be obtained".
func TestPrimaryLostInTheMiddleOfAnUpdate(t *testing.T) {
	directly(t, "several management servers, and the relay is one")
	overLinks(t, func(t *testing.T) {
		p := newPair(t, "cluster", "cluster-low")
		cc := p.dial("xds:///" + service)
		load := loadOn(t, cc, p.fromHigh)
		// The new route names a cluster; when the client subscribes to it, the primary
		// stops.
		p.high.OnRequest(func(r xdstest.Request) error {
			if asks(xdsmsg.ClusterType, "new", "cluster")(r) {
				p.high.RefuseStreams(errors.New("gone"))
				return errors.New("gone")
			}
			return nil
		})
		p.high.set(xdsmsg.RouteConfig(service, service, xdsmsg.PrefixRoute("", "new")))
		load.await(t, p.fromLow)
		// Back with all of it, it is preferred again.
		p.high.OnRequest(nil)
		p.high.set(clusterOf("new", p.fromHigh)...)
		p.high.RefuseStreams(nil)
		load.await(t, p.fromHigh)
		load.stop(t)
	})
}

// gRFC A71: only when all control planes are unreachable do RPCs fail, with an
// error that names each of them and why.
func TestErrorOfTwoUnreachableServers(t *testing.T) {
	directly(t, "several management servers, and the relay is one")
	t.Parallel()
	p := newPair(t, "cluster", "cluster")
	p.high.Stop()
	p.low.RefuseStreams(errors.New("the secondary is closed today"))
	cc := p.dial("xds:///" + service)
	_, err := call(testutils.Context(t), cc, unary)
	checkStatus(t, err, codes.Unavailable, p.high.Addr(), "connection refused", p.low.Addr(), "the secondary is closed today", t.Name())

	backend := testutils.StartBackend(t, "low")
	p.low.serve(service, "cluster", backend)
	p.low.RefuseStreams(nil)
	mustReach(t, cc, unary, backend)
}

// gRFC A71: fallback is per target. While the primary is down, a channel that has all its
// resources keeps the primary's configuration, and one that is dialled then in the same
// process uses the secondary's, even though both have a cluster of the same name. When the
// primary is back, both use it. No RPC fails.
func TestOneTargetFallsBackAndTheOtherStays(t *testing.T) {
	directly(t, "several management servers, and the relay is one")
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
