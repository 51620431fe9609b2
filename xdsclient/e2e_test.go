package xdsclient

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/backoff"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// quick is a backoff for tests in real time.
var quick = backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 100 * time.Millisecond}

// untilCluster waits for a cluster with the text, whatever comes before.
func (e *ear) untilCluster(text string) {
	e.t.Helper()
	for {
		if h := e.next(); h.err == nil && h.value.(interface{ GetAltStatName() string }).GetAltStatName() == text {
			return
		}
	}
}

// twoServers returns a client of two servers on loopback.
func twoServers(t *testing.T) (c *XDSClient, high, low *xdstest.Server) {
	t.Helper()
	high, low = xdstest.StartServer(t), xdstest.StartServer(t)
	c, err := New(parseBootstrap(t, high.Addr(), testutils.FurtherServer(low.Addr())), Options{Backoff: quick})
	xdstest.NoError(t, err)
	t.Cleanup(c.Close)
	return c, high, low
}

// Two servers that break, stall, refuse and restart at random never make a watcher
// miss the final state: that of the preferred server. Several targets watch the same names, channels come and go, and
// metrics and dumps are read.
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
	m := newMeter()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var readers sync.WaitGroup
	for i := range targets {
		readers.Go(func() {
			for ctx.Err() == nil {
				detach := c.Attach(fmt.Sprint(i), m)
				m.read(t)
				c.Dump()
				detach()
			}
		})
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
	cancel()
	readers.Wait()
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
