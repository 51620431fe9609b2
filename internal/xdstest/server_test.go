package xdstest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	twinpb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

type adsStream = discoverypb.AggregatedDiscoveryService_StreamAggregatedResourcesClient

func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// openADS opens a stream on a new connection, so that no backoff of an earlier
// failure is in the way.
func openADS(ctx context.Context, t *testing.T, f *xdstest.Server) adsStream {
	t.Helper()
	stream, err := discoverypb.NewAggregatedDiscoveryServiceClient(dial(t, f.Addr())).
		StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func send(t *testing.T, stream adsStream, req *discoverypb.DiscoveryRequest) {
	t.Helper()
	if err := stream.Send(req); err != nil {
		t.Fatal(err)
	}
}

func recv(t *testing.T, stream adsStream) *discoverypb.DiscoveryResponse {
	t.Helper()
	resp, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func clusters(names ...string) *discoverypb.DiscoveryRequest {
	return &discoverypb.DiscoveryRequest{
		Node: &corepb.Node{Id: "n"}, TypeUrl: xdsmsg.ClusterType, ResourceNames: names,
	}
}

func TestServer_ServesTheStoreAndRecordsRequests(t *testing.T) {
	t.Parallel()
	ctx, f := testutils.Context(t), xdstest.StartServer(t)
	f.Set(t, xdsmsg.EDSCluster("c", "svc"))
	stream := openADS(ctx, t, f)
	send(t, stream, clusters("c"))
	resp := recv(t, stream)
	send(t, stream, &discoverypb.DiscoveryRequest{
		TypeUrl: xdsmsg.ClusterType, ResourceNames: []string{"d", "c"},
		VersionInfo: resp.GetVersionInfo(), ResponseNonce: resp.GetNonce(),
	})
	send(t, stream, &discoverypb.DiscoveryRequest{
		TypeUrl: xdsmsg.ClusterType, ResponseNonce: resp.GetNonce(),
		ErrorDetail: &statuspb.Status{Code: int32(codes.InvalidArgument), Message: "no good"},
	})

	first := f.MustWait(ctx, t, xdstest.OfType(xdsmsg.ClusterType))
	if first.Node.GetId() != "n" || first.Stream != 1 || first.Nonce != "" || !slices.Equal(first.Names, []string{"c"}) {
		t.Errorf("first request: %s", first)
	}
	ack := f.MustWait(ctx, t, xdstest.OnStream(1, xdstest.ACKOf(xdsmsg.ClusterType), xdstest.ForNames(xdsmsg.ClusterType, "c", "d")))
	if ack.Node != nil || ack.Version != resp.GetVersionInfo() || ack.Nonce != resp.GetNonce() {
		t.Errorf("ACK: %s", ack)
	}
	nack := f.MustWait(ctx, t, xdstest.NACKOf(xdsmsg.ClusterType))
	if nack.Err.Code() != codes.InvalidArgument || nack.Err.Message() != "no good" {
		t.Errorf("NACK: %s", nack)
	}
	if got := len(f.Requests()); got != 3 {
		t.Errorf("%d requests are recorded, want 3", got)
	}
	if got := f.Clients(); len(got) != 1 || got[0].Node.GetId() != "n" {
		t.Errorf("clients: %+v", got)
	}
}

func TestServer_WaitGoesOnAfterTheLastMatchAndSaysWhatCame(t *testing.T) {
	t.Parallel()
	ctx, f := testutils.Context(t), xdstest.StartServer(t)
	stream := openADS(ctx, t, f)
	for _, name := range []string{"a", "b", "c", "d"} {
		send(t, stream, clusters(name))
	}
	f.MustWait(ctx, t, xdstest.ForNames(xdsmsg.ClusterType, "b"))
	if got := f.MustWait(ctx, t, xdstest.AnyRequest()); !slices.Equal(got.Names, []string{"c"}) {
		t.Errorf("after b came %s", got)
	}
	f.MustWait(ctx, t, xdstest.ForNames(xdsmsg.ClusterType, "d"))
	f.Skip()
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err := f.Wait(canceled, xdstest.AnyRequest())
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `Cluster names=["d"]`) {
		t.Errorf("error: %v", err)
	}
}

func TestServer_StopRefusesConnectionsAndRestartKeepsTheAddress(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*xdstest.Server){
		"crash":    (*xdstest.Server).Stop,
		"graceful": (*xdstest.Server).GracefulStop,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, f := testutils.Context(t), xdstest.StartServer(t)
			f.Set(t, xdsmsg.EDSCluster("c", ""))
			addr, stream := f.Addr(), openADS(ctx, t, f)
			send(t, stream, clusters("c"))
			recv(t, stream)

			stop(f)
			stop(f) // again changes nothing
			if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
				t.Errorf("the stream ended with %v", err)
			}
			if conn, err := net.Dial("tcp", addr); err == nil {
				conn.Close()
				t.Error("a stopped server accepts connections")
			}
			if got := f.Clients(); got != nil {
				t.Errorf("clients while stopped: %+v", got)
			}

			if err := f.Restart(); err != nil {
				t.Fatal(err)
			}
			if f.Addr() != addr {
				t.Errorf("the address changed from %s to %s", addr, f.Addr())
			}
			stream = openADS(ctx, t, f)
			send(t, stream, clusters("c"))
			if got := len(recv(t, stream).GetResources()); got != 1 {
				t.Errorf("%d Clusters after the restart", got)
			}
			if got := f.MustWait(ctx, t, func(r xdstest.Request) bool { return r.Stream == 2 }); got.Node == nil {
				t.Errorf("first request of the second stream: %s", got)
			}
		})
	}
}

func TestServer_RefuseStreams(t *testing.T) {
	t.Parallel()
	ctx, f := testutils.Context(t), xdstest.StartServer(t)
	for _, tt := range []struct {
		given error
		want  codes.Code
	}{
		{status.Error(codes.PermissionDenied, "not you"), codes.PermissionDenied},
		{errors.New("plain"), codes.Unavailable},
	} {
		f.RefuseStreams(tt.given)
		if _, err := openADS(ctx, t, f).Recv(); status.Code(err) != tt.want {
			t.Errorf("refused with %v, want %v", err, tt.want)
		}
	}
	f.RefuseStreams(nil)
	stream := openADS(ctx, t, f)
	send(t, stream, clusters())
	recv(t, stream)
	if err := f.WaitAttempts(ctx, 3); err != nil {
		t.Error(err)
	}
	if got := f.Attempts(); got != 3 {
		t.Errorf("%d attempts, want 3", got)
	}
}

func TestServer_BreakStreamsEndsAlsoStalledOnes(t *testing.T) {
	t.Parallel()
	ctx, f := testutils.Context(t), xdstest.StartServer(t)
	resumeSends, resumeReads := f.StallSends(), f.StallReads()
	defer resumeSends()
	defer resumeReads()
	a, b := openADS(ctx, t, f), openADS(ctx, t, f)
	if err := f.WaitOpen(ctx, 2); err != nil {
		t.Fatal(err)
	}
	f.BreakStreams(status.Error(codes.Aborted, "broken"))
	for _, stream := range []adsStream{a, b} {
		if _, err := stream.Recv(); status.Code(err) != codes.Aborted {
			t.Errorf("the stream ended with %v", err)
		}
	}
	if err := f.WaitOpen(ctx, 0); err != nil {
		t.Error(err)
	}
	c := openADS(ctx, t, f)
	if err := f.WaitOpen(ctx, 1); err != nil {
		t.Fatal(err)
	}
	f.BreakStreams(nil)
	if _, err := c.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v, want OK", err)
	}
}

func TestServer_StallSends(t *testing.T) {
	t.Parallel()
	ctx, f := testutils.Context(t), xdstest.StartServer(t)
	f.Set(t, xdsmsg.EDSCluster("c", ""))
	stream := openADS(ctx, t, f)
	resume := f.StallSends()
	send(t, stream, clusters("c"))
	f.MustWait(ctx, t, xdstest.AnyRequest())
	// A hand-made response passes the stalled ones.
	if err := f.Send(&discoverypb.DiscoveryResponse{TypeUrl: "x", Nonce: "mine"}); err != nil {
		t.Fatal(err)
	}
	if got := recv(t, stream); got.GetNonce() != "mine" {
		t.Errorf("got %v through the stall", got)
	}
	resume()
	resume()
	if got := recv(t, stream); got.GetTypeUrl() != xdsmsg.ClusterType {
		t.Errorf("got %v after the stall", got)
	}
}

func TestServer_StallReads(t *testing.T) {
	t.Parallel()
	ctx, f := testutils.Context(t), xdstest.StartServer(t)
	f.Set(t, xdsmsg.EDSCluster("c", ""))
	stream := openADS(ctx, t, f)
	resume := f.StallReads()
	send(t, stream, clusters("c"))
	if err := f.WaitOpen(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if got := f.Requests(); len(got) != 0 {
		t.Errorf("requests passed the stall: %v", got)
	}
	resume()
	f.MustWait(ctx, t, xdstest.ForNames(xdsmsg.ClusterType, "c"))
	recv(t, stream)
}

func TestServer_AnswerToHandMadeResponseKeepsTheSubscription(t *testing.T) {
	t.Parallel()
	ctx, f := testutils.Context(t), xdstest.StartServer(t)
	if err := f.Send(&discoverypb.DiscoveryResponse{}); err == nil {
		t.Error("sent on no stream")
	}
	f.Set(t, xdsmsg.RouteConfig("a", "*"), xdsmsg.RouteConfig("b", "*"))
	stream := openADS(ctx, t, f)
	send(t, stream, &discoverypb.DiscoveryRequest{TypeUrl: xdsmsg.RouteType, ResourceNames: []string{"a"}})
	real := recv(t, stream)
	if err := f.Send(&discoverypb.DiscoveryResponse{TypeUrl: xdsmsg.RouteType, VersionInfo: "fake", Nonce: "fake"}); err != nil {
		t.Fatal(err)
	}
	recv(t, stream)
	send(t, stream, &discoverypb.DiscoveryRequest{
		TypeUrl: xdsmsg.RouteType, ResourceNames: []string{"a", "b"},
		VersionInfo: real.GetVersionInfo(), ResponseNonce: "fake",
		ErrorDetail: &statuspb.Status{Code: 3, Message: "rejected"},
	})
	nack := f.MustWait(ctx, t, xdstest.NACKOf(xdsmsg.RouteType))
	if nack.Nonce != "fake" {
		t.Errorf("recorded: %s", nack)
	}
	if got := recv(t, stream); len(got.GetResources()) != 1 {
		t.Errorf("for the new subscription came %v", got)
	}
	if got := f.Clients()[0].Types[0]; got.NACK != nil || got.Reply != controlplane.ReplyAwaited {
		t.Errorf("the control plane took the NACK for one of its own: %+v", got)
	}
}

func TestServer_Hooks(t *testing.T) {
	t.Parallel()
	ctx, f := testutils.Context(t), xdstest.StartServer(t)
	f.Set(t, xdsmsg.EDSCluster("c", ""))
	f.OnRequest(func(r xdstest.Request) error {
		if slices.Contains(r.Names, "forbidden") {
			return status.Error(codes.PermissionDenied, "forbidden")
		}
		return nil
	})
	f.OnResponse(func(stream uint64, resp *twinpb.DiscoveryResponse) *twinpb.DiscoveryResponse {
		if resp.GetTypeUrl() == xdsmsg.ListenerType {
			return nil
		}
		resp.VersionInfo = "edited"
		resp.Resources = nil
		return resp
	})
	stream := openADS(ctx, t, f)
	send(t, stream, &discoverypb.DiscoveryRequest{TypeUrl: xdsmsg.ListenerType})
	send(t, stream, clusters("c"))
	if got := recv(t, stream); got.GetVersionInfo() != "edited" || got.GetTypeUrl() != xdsmsg.ClusterType {
		t.Errorf("got %v", got)
	}
	if f.Store().Get(xdsmsg.ClusterType, "c") == nil {
		t.Error("the hook reached into the store")
	}
	send(t, stream, clusters("forbidden"))
	if _, err := stream.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestServer_SharedStoreAndOptions(t *testing.T) {
	t.Parallel()
	ctx, store := testutils.Context(t), controlplane.NewStore()
	a := xdstest.StartServer(t, testutils.OverStore(store))
	b := xdstest.StartServer(t, testutils.OverStore(store),
		testutils.ControlPlaneOptions(controlplane.WithMaxSubscriptions(1)),
		testutils.GRPCOptions(grpc.MaxRecvMsgSize(1<<20)))
	a.Set(t, xdsmsg.EDSCluster("c", ""))
	stream := openADS(ctx, t, b)
	send(t, stream, clusters())
	if got := len(recv(t, stream).GetResources()); got != 1 {
		t.Errorf("%d Clusters", got)
	}
	send(t, stream, clusters("c"))
	if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the stream ended with %v", err)
	}
	a.Delete(t, xdsmsg.ClusterType, "c")
	if store.Get(xdsmsg.ClusterType, "c") != nil {
		t.Error("the Cluster was not deleted")
	}
}
