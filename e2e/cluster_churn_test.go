package e2e_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/testutils"
)

var (
	churnFor  = flag.Duration("churn", 3*time.Second, "how long the churn test lasts, over SotW and over delta each")
	churnSeed = flag.Uint64("churn-seed", 0, "what the churn test draws from; 0 for another one each time")
)

// churnInterval is the time between two updates.
const churnInterval = 10 * time.Millisecond

// churn is a cluster whose endpoints, localities and priorities change all the time. Steady backends
// always run, passing ones stop and start. Whatever it draws, one steady backend is HEALTHY.
type churn struct {
	rand            *rand.Rand
	steady, passing []*testutils.Backend
}

func newChurn(t *testing.T, seed uint64) *churn {
	return &churn{
		rand:    rand.New(rand.NewPCG(seed, seed)),
		steady:  backends(t, "steady0", "steady1", "steady2"),
		passing: backends(t, "passing0", "passing1", "passing2", "passing3", "passing4"),
	}
}

// draw draws a ClusterLoadAssignment.
func (c *churn) draw(name string) *endpointpb.ClusterLoadAssignment {
	var localities []xdsmsg.Locality
	for priority := range 1 + c.rand.IntN(3) {
		zones := c.rand.Perm(3)[:1+c.rand.IntN(2)]
		for _, zone := range zones {
			localities = append(localities, xdsmsg.Locality{
				Zone: fmt.Sprint("zone", zone), Priority: uint32(priority), Weight: 1 + c.rand.Uint32N(10),
			})
		}
	}
	put := func(b *testutils.Backend, health corepb.HealthStatus) {
		l := &localities[c.rand.IntN(len(localities))]
		l.Endpoints = append(l.Endpoints, xdsmsg.Endpoint{Addr: b.Addr(), Health: health, Weight: 1 + c.rand.Uint32N(10)})
	}
	sure := c.rand.IntN(len(c.steady))
	for i, b := range slices.Concat(c.steady, c.passing) {
		switch {
		case i == sure:
			put(b, corepb.HealthStatus_HEALTHY)
		case c.rand.IntN(3) > 0:
			put(b, corepb.HealthStatus(c.rand.IntN(4))) // UNKNOWN, HEALTHY, UNHEALTHY or DRAINING
		}
	}
	return xdsmsg.Endpoints(name, localities...)
}

// restartPassing stops and starts the passing backends, one after the other, until over is closed. Each one
// finishes its RPCs first, as a client cannot save an RPC whose backend dies.
func (c *churn) restartPassing(t *testing.T, seed uint64, over <-chan struct{}) {
	draw := rand.New(rand.NewPCG(seed, 0))
	for {
		b := c.passing[draw.IntN(len(c.passing))]
		b.GracefulStop()
		select {
		case <-over:
		case <-time.After(time.Duration(draw.IntN(200)) * time.Millisecond):
		}
		if err := b.Restart(); err != nil {
			t.Error(err)
			return
		}
		select {
		case <-over:
			return
		case <-time.After(time.Duration(draw.IntN(200)) * time.Millisecond):
		}
	}
}

// Endpoints, localities, priorities, weights and health change 100 times a second under load, and backends
// restart. No RPC fails, as there is always a healthy endpoint.
func TestChurnFailsNoRPC(t *testing.T) {
	everyWay(t)
	overLinks(t, func(t *testing.T) {
		seed := *churnSeed
		if seed == 0 {
			seed = rand.Uint64()
		}
		m, c := newMesh(t), newChurn(t, seed)
		const name = "churning"
		m.serve(service, name, c.steady...)
		cc := m.dial("xds:///" + service)
		l := loadOn(t, cc, c.steady...)

		over := make(chan struct{})
		var backends sync.WaitGroup
		backends.Go(func() { c.restartPassing(t, seed, over) })
		updates := 0
		ticker := time.NewTicker(churnInterval)
		defer ticker.Stop()
		all := slices.Concat(c.steady, c.passing)
		unused := func(b *testutils.Backend) bool { return b.Count() == 0 }
		goesOn := func(late time.Duration) bool {
			return late < 0 || late < 30*time.Second && slices.ContainsFunc(all, unused)
		}
		for end := time.Now().Add(*churnFor); goesOn(time.Since(end)); updates++ {
			<-ticker.C
			m.set(c.draw(name))
		}
		close(over)
		backends.Wait()

		// The last update counts.
		last := c.steady[0]
		m.set(endpointsOf(name, last))
		l.await(t, last)
		l.Stop(t)
		t.Logf("seed %d: %d updates", seed, updates)
		if t.Failed() {
			t.Errorf("again with -churn-seed=%d", seed)
		}
		for _, b := range all {
			if unused(b) {
				t.Errorf("backend %s got no RPC", b.ID())
			}
		}
	})
}

// atPriority1 is a locality of priority 1.
func atPriority1(backends ...*testutils.Backend) xdsmsg.Locality {
	l := xdsmsg.In("second", addrsOf(backends)...)
	l.Priority = 1
	return l
}

// A cluster is deleted around the time when routes move away from it. The client, which
// applies deletions at once (gRFC A88), is not sent the deletion while its routes name the
// cluster. No RPC fails.
func TestDeletedClusterServesUntilRoutesHaveMoved(t *testing.T) {
	everyWay(t)
	overLinks(t, func(t *testing.T) {
		move := func(m *mesh, after *testutils.Backend) {
			m.set(clusterOf("new", after), routesTo(service, "new"))
		}
		for _, order := range []struct {
			name string
			// first is what happens before the old cluster is deleted, then what happens after.
			first, then func(m *mesh, after *testutils.Backend)
		}{
			{"routes move first", move, func(*mesh, *testutils.Backend) {}},
			{"routes move last", func(*mesh, *testutils.Backend) {}, move},
		} {
			xdstest.Parallel(t, order.name, func(t *testing.T) {
				m := overServer(t, meshtest.Start(t, meshtest.Options{
					Link: linkOf(t), Control: controlplane.Options{RemovalDelay: time.Hour, NotFoundErrors: true},
				}), failOnDataErrors)
				before, changed, after := testutils.StartBackend(t, "before"), testutils.StartBackend(t, "changed"), testutils.StartBackend(t, "after")
				m.serve(service, "old", before)
				cc := m.dial("xds:///" + service)
				l := loadOn(t, cc, before)

				// Until its requests are read, the client is subscribed to the old cluster.
				resume := m.StallReads()
				order.first(m, after)
				m.Delete(t, xdsmsg.ClusterType, "old")
				// When this is in use, the client has applied what was sent before.
				m.set(endpointsOf("old", changed))
				l.await(t, changed)
				m.Delete(t, xdsmsg.EndpointType, "old")
				order.then(m, after)
				resume()
				l.await(t, after)
				l.Stop(t)
			})
		}
	})
}
