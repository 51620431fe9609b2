package e2e_test

import (
	"fmt"
	"slices"
	"testing"

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

// Envoy, RouteConfiguration and ClusterWeight: edits of requests and of responses, of every kind of RPC, the most specific ones first.
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
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	rc := with(new(routepb.RouteConfiguration), `name: %q `+level("config")+` virtual_hosts { name: "host" domains: "*" routes { match { prefix: "" }
		route { weighted_clusters { clusters { name: "b" weight { value: 1 } `+level("weight")+`
			request_headers_to_remove: "removed" response_headers_to_remove: %q
		} } }
	} }`, service, testutils.BackendIDHeader)
	cc := m.dialServing(clusterOf("b", backend), xdsmsg.DefaultListener(service, service), rc)
	eachKind(t, func(t *testing.T, k kind) {
		r := callFor(metadata.AppendToOutgoingContext(testutils.Context(t), "removed", "v"), cc, k)
		xdstest.NoError(t, r.err)
		for removed, md := range map[string]metadata.MD{"removed": backend.Last().Metadata, testutils.BackendIDHeader: r.header} {
			if !slices.Equal(md["all"], []string{"weight", "config"}) || !slices.Equal(md["one"], []string{"config"}) || md[removed] != nil {
				t.Errorf("the edits made %v", md)
			}
		}
	})
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
		l.Stop(t)
	})
}
