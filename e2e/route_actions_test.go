package e2e_test

import (
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
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
