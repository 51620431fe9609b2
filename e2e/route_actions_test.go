package e2e_test

import (
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// toCluster is a route of all RPCs to the cluster, for a test to add to.
func toCluster(cluster string) *routepb.Route { return xdsmsg.PrefixRoute("", cluster) }

// routeOf is a route in the text format of protobuf.
func routeOf(text string, args ...any) *routepb.Route { return with(new(routepb.Route), text, args...) }

// Shadows that fail, hang and die do not fail an RPC.
func TestMirrorUnderLoad(t *testing.T) {
	inOneWay(t, "the shadow changes, and no resource")
	overLinks(t, func(t *testing.T) {
		m := newMesh(t)
		primary, shadow := testutils.StartBackend(t, "primary"), testutils.StartBackend(t, "shadow")
		const policy = `request_mirror_policies { cluster: "shadow" runtime_fraction { default_value { numerator: 50 } } }`
		cc := m.dialServing(chain(service, with(toCluster("primary"), "route { %s %s }", policy, policy)), clusterOf("primary", primary), clusterOf("shadow", shadow))
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
