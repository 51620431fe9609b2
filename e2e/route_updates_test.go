package e2e_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// No RPC fails when resources of any kind change, nor when the control plane restarts, or is
// lost between a resource and one that it refers to.
func TestUpdatesUnderLoad(t *testing.T) {
	everyWay(t)
	overLinks(t, func(t *testing.T) {
		for _, update := range []struct {
			name   string
			change func(m *mesh, l load, from, to *testutils.Backend)
		}{
			{"LDS names another RouteConfiguration", func(m *mesh, l load, from, to *testutils.Backend) {
				m.set(clusterOf("new", to),
					xdsmsg.RouteConfig("other-routes", service, toCluster("new")),
					xdsmsg.DefaultListener(service, "other-routes"))
			}},
			{"LDS moves the routes inline", func(m *mesh, l load, from, to *testutils.Backend) {
				m.set(clusterOf("new", to),
					xdsmsg.InlineListener(service, xdsmsg.RouteConfig("inline", service, toCluster("new"))))
			}},
			{"RDS moves to another cluster", func(m *mesh, l load, from, to *testutils.Backend) {
				m.set(clusterOf("new", to), routesTo(service, "new"))
			}},
			{"RDS moves to a cluster that is configured later", func(m *mesh, l load, from, to *testutils.Backend) {
				m.keepSilent()
				m.set(routesTo(service, "new"))
				m.MustWait(testutils.Context(m.t), m.t, xdstest.Subscribing(xdsmsg.ClusterType, "new"))
				m.set(clusterOf("new", to))
			}},
			{"CDS names another ClusterLoadAssignment", func(m *mesh, l load, from, to *testutils.Backend) {
				m.set(xdsmsg.EDSCluster("cluster", "other-endpoints"), endpointsOf("other-endpoints", to))
			}},
			{"CDS names a ClusterLoadAssignment that is configured later", func(m *mesh, l load, from, to *testutils.Backend) {
				m.keepSilent()
				m.set(xdsmsg.EDSCluster("cluster", "other-endpoints"))
				m.MustWait(testutils.Context(m.t), m.t, xdstest.Subscribing(xdsmsg.EndpointType, "other-endpoints"))
				m.set(endpointsOf("other-endpoints", to))
			}},
			{"EDS names another endpoint", func(m *mesh, l load, from, to *testutils.Backend) {
				m.set(endpointsOf("cluster", to))
			}},
			{"EDS marks the old endpoint unhealthy", func(m *mesh, l load, from, to *testutils.Backend) {
				endpoints := endpointsOf("cluster", from, to)
				endpoints.Endpoints[0].LbEndpoints[0].HealthStatus = corepb.HealthStatus_UNHEALTHY
				m.set(endpoints)
			}},
			{"the control plane restarts with another endpoint", func(m *mesh, l load, from, to *testutils.Backend) {
				m.Stop()
				l.await(m.t, from)
				m.set(clusterOf("cluster", to))
				m.restart()
			}},
			{"RDS names a new cluster, and the control plane is lost", func(m *mesh, l load, from, to *testutils.Backend) {
				m.keepSilent()
				m.set(routesTo(service, "new"))
				m.MustWait(testutils.Context(m.t), m.t, xdstest.Subscribing(xdsmsg.ClusterType, "new"))
				comesBack(m, l, from, to)
			}},
			{"CDS names a new ClusterLoadAssignment, and the control plane is lost", func(m *mesh, l load, from, to *testutils.Backend) {
				m.keepSilent()
				m.set(xdsmsg.EDSCluster("cluster", "new"))
				m.MustWait(testutils.Context(m.t), m.t, xdstest.Subscribing(xdsmsg.EndpointType, "new"))
				comesBack(m, l, from, to)
			}},
		} {
			xdstest.Parallel(t, update.name, func(t *testing.T) {
				m := newMesh(t)
				before, after := testutils.StartBackend(t, "before"), testutils.StartBackend(t, "after")
				m.serve(service, "cluster", before)
				cc := m.dial("xds:///" + service)
				l := loadOn(t, cc, before)
				update.change(m, l, before, after)
				l.await(t, after)
				l.Stop(t)
			})
		}
	})
}

// comesBack cuts the client off from the control plane, which returns with the cluster
// "new". RPCs go on as they did until then.
func comesBack(m *mesh, l load, from, to *testutils.Backend) {
	m.t.Helper()
	m.cutOff(1)
	l.await(m.t, from)
	m.set(clusterOf("new", to))
	m.RefuseStreams(nil)
}

// changingRoutes is the i-th of a sequence of RouteConfigurations. Each sends all RPCs to a cluster that the one
// before did not name, with other route features.
func changingRoutes(i int) *routepb.RouteConfiguration {
	route := toCluster(fmt.Sprintf("cluster-%d", i%7))
	if i%2 == 0 {
		with(route, `route { retry_policy { retry_on: "unavailable" } }`)
	}
	if i%3 == 0 {
		with(route, `request_headers_to_add { header { key: "update" value: "%d" } }
			response_headers_to_add { header { key: "x" value: "y" } }`, i)
	}
	if i%5 == 0 {
		with(route, `route { request_mirror_policies { cluster: "cluster-%d" } }`, (i+1)%7)
	}
	if i%11 == 0 {
		with(route, "route { %s }", hashOfChannel)
	}
	// Routes that no RPC takes, so that a version that is leaked shows.
	routes := make([]*routepb.Route, 0, 101)
	for n := range 100 {
		routes = append(routes, xdsmsg.PathRoute(fmt.Sprintf("/update-%d/method-%d", i, n), "cluster-0"))
	}
	return xdsmsg.RouteConfig(service, service, append(routes, route)...)
}

// updateUnderLoad changes the routes n times while RPCs of every kind run, none of
// which may fail.
func (m *mesh) updateUnderLoad(cc *grpc.ClientConn, n int, backend *testutils.Backend) {
	m.t.Helper()
	l := startLoad(m.t, cc)
	ctx, cancel := context.WithTimeout(m.t.Context(), 5*time.Minute) // a slow machine, with -race
	defer cancel()
	for i := 1; i <= n; i++ {
		m.Skip()
		m.set(changingRoutes(i))
		m.MustWait(ctx, m.t, xdstest.ACKOf(xdsmsg.RouteType))
	}
	l.await(m.t, backend)
	l.Stop(m.t)
}

// Updating the routes 1,000 times under load fails no RPC and leaks nothing. The test is not parallel to others, as
// it measures the process.
func TestRoutesChangeAThousandTimesUnderLoad(t *testing.T) {
	overLinksInTurn(t, func(t *testing.T) {
		half := 500
		if isUnder(t, slowLink) {
			half /= 10 // each waits for its ACK
		}
		m, backend := newMesh(t), testutils.StartBackend(t, "b1")
		for i := range 7 {
			m.set(clusterOf(fmt.Sprintf("cluster-%d", i), backend))
		}
		cc := m.dialServing(xdsmsg.DefaultListener(service, service), changingRoutes(0))
		mustReach(t, cc, unary, backend)
		goroutines := runtime.NumGoroutine()
		m.updateUnderLoad(cc, half, backend)
		// What is allocated only once has been after half of the updates.
		before := m.atRest(cc, backend, goroutines, math.MaxInt64)
		m.updateUnderLoad(cc, half, backend)
		// The fake control plane keeps some 2 KB of requests for each update. One version
		// of the routes is some 30 KB, so that 1 in 4 that is kept shows.
		m.atRest(cc, backend, goroutines, before+4<<20)
	})
}

// atRest returns the size of the heap, in bytes, when the first routes are back in
// use and the process holds no more than wanted. Connections that updates gave up
// stay open for a while.
func (m *mesh) atRest(cc *grpc.ClientConn, backend *testutils.Backend, goroutines int, heap int64) int64 {
	m.t.Helper()
	ctx := testutils.Context(m.t)
	m.Skip()
	m.set(changingRoutes(0))
	m.MustWait(ctx, m.t, xdstest.ACKOf(xdsmsg.RouteType))
	mustReach(m.t, cc, unary, backend)
	// At the start, connections for copies of RPCs may have been missing.
	goroutines += 20
	for ; ; runtime.Gosched() {
		n, size := runtime.NumGoroutine(), heapSize()
		if n <= goroutines && size <= heap {
			return size
		}
		if ctx.Err() != nil {
			m.t.Fatalf("the process holds %d goroutines and %d bytes, more than %d and %d", n, size, goroutines, heap)
		}
	}
}

func heapSize() int64 {
	runtime.GC()
	runtime.GC() // what the first one finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
