package e2e_test

import (
	"fmt"
	"sync"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/dynxds/dynxds/internal/provenance"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/testutils"
)

// No RPC fails when resources of any kind change, nor when the control plane restarts, or is
// lost between a resource and one that it refers to.
func TestUpdatesUnderLoad(t *testing.T) {
	everyWay(t)
	overLinks(t, func(t *testing.T) {
		for _, update := range []struct {
			name   string
			change func(m *mesh, l *load, from, to *testutils.Backend)
		}{
			{"LDS names another RouteConfiguration", func(m *mesh, l *load, from, to *testutils.Backend) {
				m.set(clusterOf("new", to),
					xdsmsg.RouteConfig("other-routes", service, toCluster("new")),
					xdsmsg.DefaultListener(service, "other-routes"))
			}},
			{"LDS moves the routes inline", func(m *mesh, l *load, from, to *testutils.Backend) {
				m.set(clusterOf("new", to),
					xdsmsg.InlineListener(service, xdsmsg.RouteConfig("inline", service, toCluster("new"))))
			}},
			{"RDS moves to another cluster", func(m *mesh, l *load, from, to *testutils.Backend) {
				m.set(clusterOf("new", to), routesTo(service, "new"))
			}},
			{"RDS moves to a cluster that is configured later", func(m *mesh, l *load, from, to *testutils.Backend) {
				m.keepSilent()
				m.set(routesTo(service, "new"))
				m.MustWait(testutils.Context(m.t), m.t, asks(xdsmsg.ClusterType, "new", "cluster"))
				m.set(clusterOf("new", to))
			}},
			{"CDS names another ClusterLoadAssignment", func(m *mesh, l *load, from, to *testutils.Backend) {
				m.set(xdsmsg.EDSCluster("cluster", "other-endpoints"), endpointsOf("other-endpoints", to))
			}},
			{"CDS names a ClusterLoadAssignment that is configured later", func(m *mesh, l *load, from, to *testutils.Backend) {
				m.keepSilent()
				m.set(xdsmsg.EDSCluster("cluster", "other-endpoints"))
				m.MustWait(testutils.Context(m.t), m.t, asks(xdsmsg.EndpointType, "other-endpoints"))
				m.set(endpointsOf("other-endpoints", to))
			}},
			{"EDS names another endpoint", func(m *mesh, l *load, from, to *testutils.Backend) {
				m.set(endpointsOf("cluster", to))
			}},
			{"EDS marks the old endpoint unhealthy", func(m *mesh, l *load, from, to *testutils.Backend) {
				endpoints := endpointsOf("cluster", from, to)
				endpoints.Endpoints[0].LbEndpoints[0].HealthStatus = corepb.HealthStatus_UNHEALTHY
				m.set(endpoints)
			}},
			{"the control plane restarts with another endpoint", func(m *mesh, l *load, from, to *testutils.Backend) {
				m.Stop()
				l.await(m.t, from)
				m.set(clusterOf("cluster", to))
				m.restart()
			}},
			{"RDS names a new cluster, and the control plane is lost", func(m *mesh, l *load, from, to *testutils.Backend) {
				m.keepSilent()
				m.set(routesTo(service, "new"))
				m.MustWait(testutils.Context(m.t), m.t, asks(xdsmsg.ClusterType, "new", "cluster"))
				comesBack(m, l, from, to)
			}},
			{"CDS names a new ClusterLoadAssignment, and the control plane is lost", func(m *mesh, l *load, from, to *testutils.Backend) {
				m.keepSilent()
				m.set(xdsmsg.EDSCluster("cluster", "new"))
				m.MustWait(testutils.Context(m.t), m.t, asks(xdsmsg.EndpointType, "new"))
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
				l.stop(t)
			})
		}
	})
}

// comesBack cuts the client off from the control plane, which returns with the cluster
// "new". RPCs go on as they did until then.
func comesBack(m *mesh, l *load, from, to *testutils.Backend) {
	m.t.Helper()
	m.cutOff(1)
	l.await(m.t, from)
	m.set(clusterOf("new", to))
	m.RefuseStreams(nil)
}

// An application that alternates two methods has each of them spread by weight: the choice for one RPC does
// not depend on that for another.
func TestAlternatingMethodsAreSpreadAlike(t *testing.T) {
	t.Parallel()
	inOneWay(t, "it is of the shares of RPCs by method")
	for name, resources := range map[string]func(a, b *testutils.Backend) []any{
		"weighted clusters": func(a, b *testutils.Backend) []any {
			return []any{chain(service, xdsmsg.WeightedRoute("", xdsmsg.Weighted{Cluster: "a", Weight: 50}, xdsmsg.Weighted{Cluster: "b", Weight: 50})),
				clusterOf("a", a), clusterOf("b", b)}
		},
		"localities": func(a, b *testutils.Backend) []any {
			return []any{chain(service, toCluster("c")), xdsmsg.EDSCluster("c", "c"),
				xdsmsg.Endpoints("c", xdsmsg.In("here", a.Addr()), xdsmsg.In("there", b.Addr()))}
		},
		"slow start": func(a, b *testutils.Backend) []any {
			return []any{chain(service, toCluster("c")),
				with(xdsmsg.EDSCluster("c", "c"), `round_robin_lb_config { slow_start_config { slow_start_window { seconds: 1 } } }`),
				xdsmsg.Endpoints("c", xdsmsg.In("here", a.Addr(), b.Addr()))}
		},
	} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			m := newMesh(t)
			a, b := testutils.StartBackend(t, "a"), testutils.StartBackend(t, "b")
			cc := m.dialServing(resources(a, b)...)
			reachAll(t, cc, a, b)
			methods := []kind{unary, bidiStreaming}
			counts := map[kind]map[string]int{unary: {}, bidiStreaming: {}}
			for range 1000 {
				for _, k := range methods {
					counts[k][backendFor(testutils.Context(t), t, cc, k)]++
				}
			}
			for _, k := range methods {
				xdstest.Shares(t, string(k), map[string]float64{"a": 1, "b": 1}, counts[k])
			}
		})
	}
}

func TestMissingClusterDoesNotBlockOtherRoutes(t *testing.T) {
	everyWay(t)
	directly(t, "the relay answers a SotW client only when it knows each of its Clusters")
	t.Parallel()
	m := newMesh(t)
	m.keepSilent()
	backend := testutils.StartBackend(t, "b1")
	cc := m.dialServing(chain(service, xdsmsg.PathRoute(emptyMethod, "missing"), toCluster("cluster")),
		clusterOf("cluster", backend))
	mustReach(t, cc, unary, backend)
	m.set(clusterOf("missing", backend))
	if err := cc.Invoke(testutils.Context(t), emptyMethod, empty, new(testgrpc.Empty)); err != nil {
		t.Errorf("RPC to the cluster that came late: %v", err)
	}
}

// A stream keeps open a connection that an update drops. RPCs that were about to use the connection neither fail
// nor hang.
func TestConnectionsAreDroppedUnderLongLivedStreams(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		m := newMesh(t)
		a, b := testutils.StartBackend(t, "a"), testutils.StartBackend(t, "b")
		m.serve(service, "cluster", a)
		cc := m.dial("xds:///" + service)
		mustReach(t, cc, unary, a)
		ctx := testutils.Context(t)
		var held []duplex
		l := startLoad(t, cc)
		for i := range 20 {
			s, err := openStream(ctx, cc)
			xdstest.NoError(t, err)
			held = append(held, s)
			backend := []*testutils.Backend{b, a}[i%2]
			m.set(clusterOf("cluster", backend))
			l.await(t, backend)
		}
		l.stop(t)
		for _, s := range held {
			end(t, s)
		}
	})
}

// When lines of policies and services move in their files, only the provenance in the resources changes. No RPC and no
// connection is affected.
func TestMovedLinesDisturbNothing(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		m, seen := newMesh(t), new(connections)
		backend := testutils.StartBackend(t, "b", grpc.StatsHandler(seen))
		at := func(part string, line int) *corepb.Metadata {
			return provenance.Metadata(map[string]string{part: fmt.Sprint("mesh.yaml:", line)})
		}
		moveTo := func(line int) {
			listener := xdsmsg.DefaultListener(service, service)
			listener.Metadata = at(provenance.Service, line)
			route := toCluster("cluster")
			route.Metadata = at(provenance.Matches, line)
			cluster := xdsmsg.EDSCluster("cluster", "")
			cluster.Metadata = at(provenance.Service, line)
			endpoints := endpointsOf("cluster", backend)
			endpoints.Endpoints[0].LbEndpoints[0].Metadata = at(provenance.Endpoint, line)
			m.set(listener, xdsmsg.RouteConfig(service, service, route), cluster, endpoints)
		}
		moveTo(1)
		cc := m.dial("xds:///" + service)
		l := loadOn(t, cc, backend)
		for line := 2; line < 12; line++ {
			before := acknowledged(t, m, nil)
			moveTo(line)
			acknowledged(t, m, before)
			l.await(t, backend)
		}
		l.stop(t)
		if n := seen.n.Load(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// acknowledged waits until the client has accepted a response for every type that is not among earlier
// ones, and returns the nonces of these responses.
func acknowledged(t *testing.T, m *mesh, earlier map[string]bool) map[string]bool {
	t.Helper()
	var mu sync.Mutex
	var accepted map[string]bool
	left := m.Control().Await(testutils.Context(t), func(c controlplane.ClientStatus) bool {
		nonces := make(map[string]bool)
		for _, typ := range c.Types {
			nonces[typ.TypeURL+" "+typ.SentNonce] = true
			if typ.Reply != controlplane.ReplyACK || earlier[typ.TypeURL+" "+typ.SentNonce] {
				return false
			}
		}
		mu.Lock()
		defer mu.Unlock()
		accepted = nonces
		return len(nonces) == 4
	})
	if left > 0 {
		t.Fatalf("the client did not accept new responses, beside %v, for all types", earlier)
	}
	return accepted
}
