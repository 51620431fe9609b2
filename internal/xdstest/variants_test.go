package xdstest_test

import (
	"slices"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	twinpb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// A FakeServer records locators, serves variants, and has DPDS under its switches.
func TestServer_Variants(t *testing.T) {
	t.Parallel()
	ctx, f := testutils.Context(t), xdstest.StartServer(t)
	f.SetVariant(t, map[string]string{"env": "prod"}, xdsmsg.EDSCluster("c", ""))
	f.SetVariant(t, map[string]string{"env": "test"}, xdsmsg.EDSCluster("c", "other"))
	f.Update(t, func(tx *testutils.Tx) {
		tx.SetDPDS("d", func(*corepb.Node) (dynparam.ByType, error) { return dynparam.ByType{}, nil })
	})
	test, err := dynparam.Exact(map[string]string{"env": "test"})
	xdstest.NoError(t, err)
	want := testutils.Locator{Name: "c", Constraints: test}
	list := []*twinpb.ResourceLocator{{Name: "c", DynamicParameterConstraints: test.ToProto()}}
	exchange := func(stream grpc.ClientStream, req, resp any) {
		t.Helper()
		xdstest.NoError(t, stream.SendMsg(req))
		if resp == nil {
			return
		}
		xdstest.NoError(t, stream.RecvMsg(resp))
	}

	changes, incremental := openStream(ctx, t, f, ads+"DeltaAggregatedResources"), new(twinpb.DeltaDiscoveryResponse)
	exchange(changes, &twinpb.DeltaDiscoveryRequest{TypeUrl: xdsmsg.ClusterType, ResourceLocatorsSubscribe: list}, incremental)
	if r := incremental.GetResources(); len(r) != 1 || r[0].GetDynamicParameters()["env"] != "test" {
		t.Errorf("got %v", incremental)
	}
	f.MustWait(ctx, t, xdstest.SubscribingTo(xdsmsg.ClusterType, want))
	exchange(changes, &twinpb.DeltaDiscoveryRequest{TypeUrl: xdsmsg.ClusterType, ResourceLocatorsUnsubscribe: list}, nil)
	f.MustWait(ctx, t, func(r xdstest.Request) bool {
		return slices.ContainsFunc(r.UnsubscribeLocators, func(l testutils.Locator) bool { return l.Name == "c" && l.Constraints.Equal(test) })
	})

	full := openStream(ctx, t, f, ads+"StreamAggregatedResources")
	exchange(full, &twinpb.DiscoveryRequest{TypeUrl: xdsmsg.ClusterType, ResourceLocators: list}, new(twinpb.DiscoveryResponse))
	f.MustWait(ctx, t, xdstest.SubscribingTo(xdsmsg.ClusterType, want))
	exchange(full, &twinpb.DiscoveryRequest{TypeUrl: xdsmsg.RouteType, ResourceLocators: []*twinpb.ResourceLocator{{Name: "r"}}}, nil)
	f.MustWait(ctx, t, xdstest.SubscribingTo(xdsmsg.RouteType, testutils.Locator{Name: "r"}))

	policy := openStream(ctx, t, f, dpds+"StreamDynamicParameterConstraints")
	exchange(policy, &twinpb.DiscoveryRequest{ResourceNames: []string{"d"}}, new(twinpb.DiscoveryResponse))
	f.BreakStreams(status.Error(codes.Aborted, "broken"))
	if err := policy.RecvMsg(new(twinpb.DiscoveryResponse)); status.Code(err) != codes.Aborted {
		t.Errorf("the DPDS stream ended with %v", err)
	}
	f.RefuseDelta(true)
	refused := openStream(ctx, t, f, dpds+"DeltaDynamicParameterConstraints")
	if err := refused.RecvMsg(new(twinpb.DeltaDiscoveryResponse)); status.Code(err) != codes.Unimplemented {
		t.Errorf("a refused DPDS stream ended with %v", err)
	}
}
