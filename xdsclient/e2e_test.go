package xdsclient

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc/backoff"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// quick is a backoff for tests in real time.
var quick = backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 100 * time.Millisecond}

func quickClient(t *testing.T, server *xdstest.Server, features ...string) *XDSClient {
	t.Helper()
	c, err := New(parseBootstrap(t, server.Addr(), testutils.ServerFeatures(features...)), WithBackoff(quick))
	xdstest.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// untilCluster waits for a cluster with the text, whatever comes before.
func (e *ear) untilCluster(text string) {
	e.t.Helper()
	for {
		if h := e.next(); h.err == nil && h.value.(interface{ GetAltStatName() string }).GetAltStatName() == text {
			return
		}
	}
}

// untilError waits for an error of the kind, whatever comes before.
func (e *ear) untilError(kind ErrorKind) heard {
	e.t.Helper()
	for {
		if h := e.next(); h.err != nil && h.err.Kind == kind {
			return h
		}
	}
}

// The whole life of a resource over loopback, against a real control plane that
// restarts on the same address.
func TestEndToEnd(t *testing.T) {
	t.Parallel()
	ctx := testutils.Context(t)
	types := newTestTypes()
	server := xdstest.StartServer(t)
	c := quickClient(t, server)
	server.Set(t, cluster("a", "1"), cluster("b", "1"), endpoints("a"))
	a, b := listenBoth(t, c, types.clusters, "a", "b")
	e, stopE := listen(t, c, types.endpoints, "a")
	allHear("1", a, b)
	e.value()
	server.MustWait(ctx, t, xdstest.ACKOf(types.clusters.TypeURL))

	server.Set(t, cluster("a", "2"))
	a.cluster("2")
	server.Set(t, badCluster("a", "x"))
	a.ambient(KindInvalid)
	server.MustWait(ctx, t, xdstest.NACKOf(types.clusters.TypeURL))
	server.Set(t, cluster("a", "3"))
	a.cluster("3")
	server.Delete(t, types.clusters.TypeURL, "a")
	a.ambient(KindDoesNotExist)

	server.Stop()
	if h := b.untilError(KindUnreachable); !h.ambient {
		t.Errorf("got %v for a cached resource, want an ambient error", h)
	}
	if h := a.untilError(KindUnreachable); !h.ambient {
		t.Errorf("got %v for a deleted resource that is in use, want an ambient error", h)
	}
	server.Set(t, cluster("a", "4"))
	xdstest.NoError(t, server.Restart())
	a.untilCluster("4")
	b.untilCluster("1")
	stopE()
	server.MustWait(ctx, t, xdstest.ForNames(types.endpoints.TypeURL))
}

// A server that breaks, stalls, refuses and restarts at random never makes a
// watcher miss the final state.
func TestNoWatchIsLostWhateverTheServerDoes(t *testing.T) {
	t.Parallel()
	const watches, rounds = 20, 60
	types := newTestTypes()
	server := xdstest.StartServer(t)
	c := quickClient(t, server)
	ears := make([]*ear, watches)
	stops := make([]func(), watches)
	for i := range ears {
		ears[i], stops[i] = listen(t, c, types.clusters, fmt.Sprint("c", i))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range rounds {
		i := random.IntN(watches)
		name := fmt.Sprint("c", i)
		switch random.IntN(7) {
		case 0:
			server.BreakStreams(errors.New("at random"))
		case 1:
			xdstest.NoError(t, server.Restart())
		case 2:
			server.RefuseStreams(errors.New("not now"))
			server.BreakStreams(nil)
			defer server.RefuseStreams(nil)
		case 3:
			server.RefuseStreams(nil)
		case 4:
			server.Delete(t, types.clusters.TypeURL, name)
		case 5:
			stops[i]()
			ears[i], stops[i] = listen(t, c, types.clusters, name)
		default:
			server.Set(t, cluster(name, fmt.Sprint("round ", round)), badCluster(fmt.Sprint("c", (i+1)%watches), "x"))
		}
	}
	server.RefuseStreams(nil)
	for i := range ears {
		server.Set(t, cluster(fmt.Sprint("c", i), "final"))
	}
	for _, e := range ears {
		e.untilCluster("final")
	}
}

// A request whose nonce is not that of the last response is ignored: in SotW by the
// protocol (Envoy, xDS protocol, "ACK and NACK"), over delta by servers like Istio. An ACK
// or NACK may be lost by that; a subscription that is due with it is not.
func TestSubscriptionOutlivesStaleAnswers(t *testing.T) {
	t.Parallel()
	for _, features := range [][]string{nil, {"delta"}} {
		for _, rejected := range []bool{false, true} {
			xdstest.Parallel(t, fmt.Sprintf("features %q, rejected %t", features, rejected), func(t *testing.T) {
				types := newTestTypes()
				server := xdstest.StartServer(t)
				server.DropStaleRequests(true)
				c := quickClient(t, server, features...)
				server.Set(t, cluster("a", "1"), cluster("b", "1"))
				a, _ := listen(t, c, types.clusters, "a")
				a.cluster("1")
				server.MustWait(testutils.Context(t), t, xdstest.ACKOf(types.clusters.TypeURL))
				var b *ear
				c.Batch(func() { // holds the requests until there are two answers
					b, _ = listen(t, c, types.clusters, "b")
					server.Set(t, cluster("a", "2"))
					a.cluster("2")
					if rejected {
						server.Set(t, badCluster("a", "x"))
						a.ambient(KindInvalid)
					} else {
						server.Set(t, cluster("a", "3"))
						a.cluster("3")
					}
				})
				b.cluster("1")
			})
		}
	}
}
