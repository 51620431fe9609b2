package meshtest_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

// open opens an ADS stream on a new connection, so that no backoff of an earlier failure is in the way.
func open(ctx context.Context, t *testing.T, s *meshtest.Server) grpc.ClientStream {
	t.Helper()
	conn, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	xdstest.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	const method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.WaitForReady(true))
	xdstest.NoError(t, err)
	return stream
}

func TestServer_StoreAndRecordSurviveARestart(t *testing.T) {
	t.Parallel()
	ctx, s := testutils.Context(t), meshtest.StartServer(t)
	s.Set(t, xdsmsg.EDSCluster("c", ""))
	for run := range uint64(2) {
		stream, resp := open(ctx, t, s), new(discoverypb.DiscoveryResponse)
		xdstest.NoError(t, stream.SendMsg(&discoverypb.DiscoveryRequest{TypeUrl: xdsmsg.ClusterType, ResourceNames: []string{"c"}}))
		xdstest.NoError(t, stream.RecvMsg(resp))
		if got := len(resp.GetResources()); got != 1 {
			t.Errorf("run %d: %d Clusters", run, got)
		}
		if req := s.MustWait(ctx, t, xdstest.Subscribing(xdsmsg.ClusterType, "c")); req.Stream != run+1 {
			t.Errorf("run %d: the request is of stream %d", run, req.Stream)
		}
		if got := s.Clients(); len(got) != 1 {
			t.Errorf("run %d: clients %+v", run, got)
		}
		s.Stop()
		if s.Control() != nil || s.Clients() != nil {
			t.Error("there is a control plane after Stop")
		}
		if err := stream.RecvMsg(resp); status.Code(err) != codes.Unavailable {
			t.Errorf("run %d: the stream ended with %v", run, err)
		}
		xdstest.NoError(t, s.Restart())
	}
}

func TestServer_SharedStoreAndOptions(t *testing.T) {
	t.Parallel()
	ctx, store := testutils.Context(t), controlplane.NewStore()
	a := meshtest.Start(t, meshtest.Options{Store: store})
	b := meshtest.Start(t, meshtest.Options{
		Store: store, Control: controlplane.Options{MaxSubscriptions: 2}, GRPC: []grpc.ServerOption{grpc.MaxRecvMsgSize(1 << 20)},
	})
	a.Set(t, xdsmsg.EDSCluster("c", ""))
	stream, resp := open(ctx, t, b), new(discoverypb.DiscoveryResponse)
	xdstest.NoError(t, stream.SendMsg(&discoverypb.DiscoveryRequest{TypeUrl: xdsmsg.ClusterType}))
	xdstest.NoError(t, stream.RecvMsg(resp))
	xdstest.Equal(t, "Clusters", 1, len(resp.GetResources()))
	xdstest.NoError(t, stream.SendMsg(&discoverypb.DiscoveryRequest{TypeUrl: xdsmsg.ClusterType, ResourceNames: []string{"c", "d"}}))
	if err := stream.RecvMsg(resp); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the stream ended with %v", err)
	}
	a.Delete(t, xdsmsg.ClusterType, "c")
	if store.Get(xdsmsg.ClusterType, "c") != nil {
		t.Error("the Cluster was not deleted")
	}
}
