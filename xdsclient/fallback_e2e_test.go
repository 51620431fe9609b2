package xdsclient

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// twoServers returns a client of two servers on loopback.
func twoServers(t *testing.T) (c *XDSClient, high, low *xdstest.Server) {
	t.Helper()
	high, low = xdstest.StartServer(t), xdstest.StartServer(t)
	c, err := New(parseBootstrap(t, high.Addr(), testutils.FurtherServer(low.Addr())), WithBackoff(quick))
	xdstest.NoError(t, err)
	t.Cleanup(c.Close)
	return c, high, low
}

// gRFC A71, over loopback: down, up, down with everything cached, down with
// something missing, and both down.
func TestFallbackEndToEnd(t *testing.T) {
	t.Parallel()
	ctx := testutils.Context(t)
	types := newTestTypes()
	c, high, low := twoServers(t)
	high.Stop()
	low.Set(t, cluster("a", "low"), cluster("b", "low"))
	high.Set(t, cluster("a", "high"), cluster("b", "high"))
	a, _ := listen(t, c, types.clusters, "a")
	a.cluster("low")
	xdstest.NoError(t, high.Restart())
	a.cluster("high")
	if err := low.WaitOpen(ctx, 0); err != nil {
		t.Error(err)
	}

	high.RefuseStreams(errors.New("not now"))
	attempts := high.Attempts()
	high.BreakStreams(errors.New("broken"))
	xdstest.NoError(t, high.WaitAttempts(ctx, attempts+3))
	xdstest.Equal(t, "streams to the lower server (all is cached)", 1, low.Attempts())
	b, _ := listen(t, c, types.clusters, "b")
	b.cluster("low")
	a.untilCluster("low")

	low.Stop()
	h := a.untilError(KindUnreachable)
	if !h.ambient || h.err.Server != high.Addr()+", "+low.Addr() {
		t.Errorf("got %v, want an ambient error that names both servers", h)
	}
	b.untilError(KindUnreachable)
	high.RefuseStreams(nil)
	a.untilCluster("high")
	b.untilCluster("high")
}

// A stalled server that has let the client connect is reachable: its resource
// timer decides (gRFC A57).
func TestStalledServerIsReachable(t *testing.T) {
	t.Parallel()
	ctx := testutils.Context(t)
	types := newTestTypes()
	c, high, low := twoServers(t)
	high.Set(t, cluster("a", "high"))
	resume := high.StallSends()
	a, _ := listen(t, c, types.clusters, "a")
	high.MustWait(ctx, t, xdstest.ForNames(types.clusters.TypeURL, "a"))
	resume()
	a.cluster("high")
	xdstest.Equal(t, "streams to the lower server", 0, low.Attempts())
}

// Two servers that break, stall, refuse and restart at random never make a watcher
// miss the final state: that of the preferred server. Several targets watch the same names.
func TestNoWatchIsLostWhateverTwoServersDo(t *testing.T) {
	t.Parallel()
	const watches, names, targets, rounds = 60, 20, 3, 120
	types := newTestTypes()
	c, high, low := twoServers(t)
	servers := []*xdstest.Server{high, low}
	ears := make([]*ear, watches)
	stops := make([]func(), watches)
	for i := range ears {
		ears[i], stops[i] = listen(t, c.ForTarget(fmt.Sprint(i%targets)), types.clusters, fmt.Sprint("c", i%names))
	}
	random := rand.New(rand.NewPCG(3, 4))
	for round := range rounds {
		server, i := servers[random.IntN(2)], random.IntN(watches)
		name := fmt.Sprint("c", i%names)
		switch random.IntN(8) {
		case 0:
			server.BreakStreams(errors.New("at random"))
		case 1:
			xdstest.NoError(t, server.Restart())
		case 2:
			server.RefuseStreams(errors.New("not now"))
			server.BreakStreams(nil)
		case 3:
			server.RefuseStreams(nil)
		case 4:
			server.Delete(t, types.clusters.TypeURL, name)
		case 5:
			stops[i]()
			ears[i], stops[i] = listen(t, c.ForTarget(fmt.Sprint(i%targets)), types.clusters, name)
		case 6:
			server.Stop()
		default:
			server.Set(t, cluster(name, fmt.Sprint("round ", round)), badCluster(fmt.Sprint("c", (i+1)%names), "x"))
		}
	}
	for _, server := range servers {
		server.RefuseStreams(nil)
		for i := range names {
			server.Set(t, cluster(fmt.Sprint("c", i), "final of "+server.Addr()))
		}
		xdstest.NoError(t, server.Restart())
	}
	for _, e := range ears {
		e.untilCluster("final of " + high.Addr())
	}
	if err := low.WaitOpen(testutils.Context(t), 0); err != nil {
		t.Errorf("the lower server is still in use: %v", err)
	}
}
