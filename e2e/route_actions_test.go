package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// toCluster is a route of all RPCs to the cluster, for a test to add to.
func toCluster(cluster string) *routepb.Route { return xdsmsg.PrefixRoute("", cluster) }

// serveRoute configures the service with the route, and one cluster for each of the backends, of the backend's
// name.
func (m *mesh) serveRoute(route *routepb.Route, backends ...*testutils.Backend) {
	m.t.Helper()
	m.serveRoutes([]*routepb.Route{route}, backends...)
}

// serveRoutes is serveRoute for several routes.
func (m *mesh) serveRoutes(routes []*routepb.Route, backends ...*testutils.Backend) {
	m.t.Helper()
	m.set(chain(service, routes...), clustersOf(backends...))
}

// clustersOf are a cluster for each of the backends, of the backend's name.
func clustersOf(backends ...*testutils.Backend) (resources []proto.Message) {
	for _, b := range backends {
		resources = append(resources, clusterOf(b.ID(), b)...)
	}
	return resources
}

// routeOf is a route in the text format of protobuf.
func routeOf(text string, args ...any) *routepb.Route { return with(new(routepb.Route), text, args...) }

// split is a route of all RPCs to the clusters, of the same weight.
func split(clusters ...string) *routepb.Route {
	var all []xdsmsg.Weighted
	for _, c := range clusters {
		all = append(all, xdsmsg.Weighted{Cluster: c, Weight: 1})
	}
	return xdsmsg.WeightedRoute("", all...)
}

// Envoy, RouteConfiguration, VirtualHost, Route and ClusterWeight: edits of all four
// levels, the most specific one first unless most_specific_header_mutations_wins is
// set; every append_action; of requests and of responses, of every kind of RPC.
func TestHeaderEditsEndToEnd(t *testing.T) {
	t.Parallel()
	level := func(name string) string {
		text := ""
		for _, field := range []string{"request_headers_to_add", "response_headers_to_add"} {
			text += fmt.Sprintf(`%[1]s { header { key: "all" value: %[2]q } }
				%[1]s { header { key: "one" value: %[2]q } append_action: OVERWRITE_IF_EXISTS_OR_ADD }
			`, field, name)
		}
		return text
	}
	for _, mostSpecificWins := range []bool{false, true} {
		xdstest.Parallel(t, fmt.Sprintf("most_specific_header_mutations_wins=%v", mostSpecificWins), func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b")
			rc := with(new(routepb.RouteConfiguration), `name: %q most_specific_header_mutations_wins: %v `+level("config")+`
				virtual_hosts { name: "host" domains: "*" `+level("host")+` routes { match { prefix: "" } `+level("route")+`
					route { weighted_clusters { clusters { name: "b" weight { value: 1 } `+level("weight")+`
						request_headers_to_add { header { key: "present" value: "new" } append_action: ADD_IF_ABSENT }
						request_headers_to_add { header { key: "absent" value: "new" } append_action: ADD_IF_ABSENT }
						request_headers_to_add { header { key: "present" value: "over" } append_action: OVERWRITE_IF_EXISTS }
						request_headers_to_add { header { key: "missing" value: "over" } append_action: OVERWRITE_IF_EXISTS }
						request_headers_to_add { header { key: "grpc-x" value: "never" } append_action: OVERWRITE_IF_EXISTS_OR_ADD }
						request_headers_to_add { header { key: ":path" value: "never" } append_action: OVERWRITE_IF_EXISTS_OR_ADD }
						request_headers_to_add { header { key: "formatted" value: "%%START_TIME%%" } }
						request_headers_to_remove: "removed" response_headers_to_remove: %q
					} } }
				} }`, service, mostSpecificWins, testutils.BackendIDHeader)
			cc := m.dialServing(clusterOf("b", backend), xdsmsg.DefaultListener(service, service), rc)
			all, one := []string{"weight", "route", "host", "config"}, []string{"config"}
			if mostSpecificWins {
				all, one = []string{"config", "host", "route", "weight"}, []string{"weight"}
			}
			eachKind(t, func(t *testing.T, k kind) {
				r := callFor(metadata.AppendToOutgoingContext(testutils.Context(t), "removed", "v", "present", "old"), cc, k)
				xdstest.NoError(t, r.err)
				md := backend.Last().Metadata
				for name, want := range map[string][]string{
					"all": all, "one": one, "removed": nil, "present": {"over"}, "absent": {"new"}, "missing": nil, "grpc-x": nil, "formatted": nil,
				} {
					if got := md[name]; !slices.Equal(got, want) {
						t.Errorf("the backend saw %s: %q, want %q", name, got, want)
					}
				}
				for name, want := range map[string][]string{"all": all, "one": one, testutils.BackendIDHeader: nil} {
					if got := r.header[name]; !slices.Equal(got, want) {
						t.Errorf("the application saw %s: %q, want %q", name, got, want)
					}
				}
			})
		})
	}
}

// RPCs are retried as the route or its virtual host says (gRFC A44).
func TestRetryEndToEnd(t *testing.T) {
	everyWay(t)
	t.Parallel()
	for _, level := range []string{"route", "virtual host"} {
		xdstest.Parallel(t, level, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b")
			route := retriedRoute("b", `retry_on: "unavailable" num_retries { value: 2 }`)
			rc := xdsmsg.RouteConfig(service, service, route)
			if level == "virtual host" {
				rc.VirtualHosts[0].RetryPolicy, route.GetRoute().RetryPolicy = route.GetRoute().RetryPolicy, nil
			}
			cc := m.dialServing(clusterOf("b", backend), xdsmsg.DefaultListener(service, service), rc)
			eachKind(t, func(t *testing.T, k kind) {
				n := failTimes(backend, 2)
				if r := callFor(testutils.Context(t), cc, k); r.err != nil || n.Load() != 3 {
					t.Errorf("%d attempts: %v", n.Load(), r.err)
				}
				if got := backend.Last().Metadata["grpc-previous-rpc-attempts"]; !slices.Equal(got, []string{"2"}) {
					t.Errorf("grpc-previous-rpc-attempts %q", got)
				}
			})
		})
	}
}

// The retries of an RPC reach the cluster that its route names by then.
func TestRetriesFollowTheRoutes(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	before, after := testutils.StartBackend(t, "before"), testutils.StartBackend(t, "after")
	const policy = `route { retry_policy { retry_on: "unavailable" num_retries { value: 4 } } }`
	m.serveRoute(with(toCluster("before"), policy), before, after)
	cc := m.dial("xds:///" + service)
	mustReach(t, cc, unary, before)
	held := make(chan struct{})
	before.SetBehaviour(func(context.Context, testutils.RPC) error {
		<-held
		return testutils.TrailersOnly(status.Error(codes.Unavailable, "moved"))
	})
	ctx := testutils.Context(t)
	done := make(chan reply, 1)
	go func() { done <- callFor(ctx, cc, unary) }()
	xdstest.NoError(t, before.Wait(ctx, 2))
	m.serveRoute(with(toCluster("after"), policy), after)
	for id := ""; id != "after"; {
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		id, _ = call(short, cc, bidiStreaming)
		cancel()
		if ctx.Err() != nil {
			t.Fatal("the routes did not move")
		}
	}
	close(held)
	if r := <-done; r.err != nil || backendID(r.header) != "after" {
		t.Errorf("answered by %q: %v", backendID(r.header), r.err)
	}
}

// Shadows that fail, hang and die do not fail an RPC.
func TestMirrorUnderLoad(t *testing.T) {
	inOneWay(t, "the shadow changes, and no resource")
	overLinks(t, func(t *testing.T) {
		m := newMesh(t)
		primary, shadow := testutils.StartBackend(t, "primary"), testutils.StartBackend(t, "shadow")
		const policy = `request_mirror_policies { cluster: "shadow" runtime_fraction { default_value { numerator: 50 } } }`
		m.serveRoute(with(toCluster("primary"), "route { %s %s }", policy, policy), primary, shadow)
		cc := m.dial("xds:///" + service)
		l := loadOn(t, cc, primary)
		pass := func(n int) {
			t.Helper()
			xdstest.NoError(t, primary.Wait(testutils.Context(t), primary.Count()+n))
		}
		for _, step := range []func(){
			func() {},
			func() { shadow.Fail(status.Error(codes.Internal, "broken")) },
			func() { shadow.Fail(nil); shadow.Stop() },
			func() { xdstest.NoError(t, shadow.Restart()) },
		} {
			step()
			pass(250)
		}
		if shadow.Count() == 0 {
			t.Error("the shadow got nothing")
		}
		release := xdstest.Hold(shadow)
		defer release()
		pass(500)
		l.stop(t)
	})
}
