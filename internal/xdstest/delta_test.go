package xdstest_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	twinpb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
)

type deltaStream = discoverypb.AggregatedDiscoveryService_DeltaAggregatedResourcesClient

func openDelta(ctx context.Context, t *testing.T, f *xdstest.Server) deltaStream {
	t.Helper()
	stream, err := discoverypb.NewAggregatedDiscoveryServiceClient(dial(t, f.Addr())).
		DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func sendDelta(t *testing.T, stream deltaStream, req *discoverypb.DeltaDiscoveryRequest) {
	t.Helper()
	if err := stream.Send(req); err != nil {
		t.Fatal(err)
	}
}

func recvDelta(t *testing.T, stream deltaStream) *discoverypb.DeltaDiscoveryResponse {
	t.Helper()
	resp, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func subscribeClusters(names ...string) *discoverypb.DeltaDiscoveryRequest {
	return &discoverypb.DeltaDiscoveryRequest{TypeUrl: xdsmsg.ClusterType, ResourceNamesSubscribe: names}
}

func TestServer_Delta(t *testing.T) {
	t.Parallel()
	ctx, f := testutils.Context(t), xdstest.StartServer(t)
	f.Set(t, xdsmsg.EDSCluster("c", ""))
	stream := openDelta(ctx, t, f)
	sendDelta(t, stream, &discoverypb.DeltaDiscoveryRequest{
		Node: &corepb.Node{Id: "n"}, TypeUrl: xdsmsg.ClusterType, ResourceNamesSubscribe: []string{"c", "d"},
		InitialResourceVersions: map[string]string{"c": "old"},
	})
	resp := recvDelta(t, stream)
	sendDelta(t, stream, &discoverypb.DeltaDiscoveryRequest{
		TypeUrl: xdsmsg.ClusterType, ResponseNonce: resp.GetNonce(), ResourceNamesUnsubscribe: []string{"d"},
	})
	sendDelta(t, stream, &discoverypb.DeltaDiscoveryRequest{
		TypeUrl: xdsmsg.ClusterType, ResponseNonce: resp.GetNonce(), ErrorDetail: &statuspb.Status{Code: int32(codes.InvalidArgument), Message: "no good"},
	})

	first := f.MustWait(ctx, t, xdstest.Subscribing(xdsmsg.ClusterType, "d"))
	if first.Protocol != controlplane.ProtocolDelta || first.Raw != nil || first.RawDelta.GetNode().GetId() != "n" || first.Node.GetId() != "n" {
		t.Errorf("first request: %s", first)
	}
	if !slices.Equal(first.Subscribe, []string{"c", "d"}) || first.InitialVersions["c"] != "old" || first.Names != nil || first.Nonce != "" {
		t.Errorf("first request: %s", first)
	}
	if text := first.String(); !strings.Contains(text, `delta Cluster subscribe=["c" "d"]`) || !strings.Contains(text, `"c":"old"`) {
		t.Errorf("String: %s", text)
	}
	ack := f.MustWait(ctx, t, xdstest.OnStream(1, xdstest.ACKOf(xdsmsg.ClusterType), xdstest.Unsubscribing(xdsmsg.ClusterType, "d")))
	if ack.Nonce != resp.GetNonce() || len(ack.Subscribe) != 0 || ack.InitialVersions != nil {
		t.Errorf("ACK: %s", ack)
	}
	if nack := f.MustWait(ctx, t, xdstest.NACKOf(xdsmsg.ClusterType)); nack.Err.Message() != "no good" {
		t.Errorf("NACK: %s", nack)
	}
	if got := f.Clients(); len(got) != 1 || got[0].Protocol != controlplane.ProtocolDelta {
		t.Errorf("clients: %+v", got)
	}
}

func TestMatches_TellTheProtocolsApart(t *testing.T) {
	t.Parallel()
	sotw := xdstest.Request{TypeURL: "t", Names: []string{"a", "b"}}
	delta := xdstest.Request{Protocol: controlplane.ProtocolDelta, TypeURL: "t", Subscribe: []string{"a", "b"}, Unsubscribe: []string{"c"}}
	tests := []struct {
		name        string
		match       xdstest.Match
		sotw, delta bool
	}{
		{"Over SotW", xdstest.Over(controlplane.ProtocolSotW), true, false},
		{"Over delta", xdstest.Over(controlplane.ProtocolDelta), false, true},
		{"Subscribing to one", xdstest.Subscribing("t", "b"), true, true},
		{"Subscribing to another", xdstest.Subscribing("t", "a", "c"), false, false},
		{"Subscribing to another type", xdstest.Subscribing("u", "a"), false, false},
		{"Unsubscribing", xdstest.Unsubscribing("t", "c"), false, true},
		{"Unsubscribing from another", xdstest.Unsubscribing("t", "a"), false, false},
		{"ForNames", xdstest.ForNames("t", "b", "a"), true, false},
		{"ForNames without names", xdstest.ForNames("t"), false, false},
	}
	for _, tt := range tests {
		if tt.match(sotw) != tt.sotw || tt.match(delta) != tt.delta {
			t.Errorf("%s: SotW %t, want %t; delta %t, want %t", tt.name, tt.match(sotw), tt.sotw, tt.match(delta), tt.delta)
		}
	}
}

func TestServer_RefuseDelta(t *testing.T) {
	t.Parallel()
	ctx, f := testutils.Context(t), xdstest.StartServer(t)
	f.RefuseDelta(true)
	if _, err := openDelta(ctx, t, f).Recv(); status.Code(err) != codes.Unimplemented {
		t.Errorf("delta ended with %v", err)
	}
	old := openADS(ctx, t, f)
	send(t, old, clusters())
	recv(t, old)
	f.RefuseDelta(false)
	stream := openDelta(ctx, t, f)
	sendDelta(t, stream, subscribeClusters())
	recvDelta(t, stream)
	if got := f.Attempts(); got != 3 {
		t.Errorf("%d attempts, want 3", got)
	}
}

func TestServer_DeltaHooks(t *testing.T) {
	t.Parallel()
	ctx, f := testutils.Context(t), xdstest.StartServer(t)
	f.Set(t, xdsmsg.EDSCluster("c", ""))
	f.OnRequest(func(r xdstest.Request) error {
		if slices.Contains(r.Subscribe, "forbidden") {
			return status.Error(codes.PermissionDenied, "forbidden")
		}
		return nil
	})
	f.OnDeltaResponse(func(stream uint64, resp *twinpb.DeltaDiscoveryResponse) *twinpb.DeltaDiscoveryResponse {
		if resp.GetTypeUrl() == xdsmsg.ListenerType {
			return nil
		}
		resp.RemovedResources = append(resp.RemovedResources, "edited")
		resp.Resources[0].Name = "renamed"
		return resp
	})
	stream := openDelta(ctx, t, f)
	sendDelta(t, stream, &discoverypb.DeltaDiscoveryRequest{TypeUrl: xdsmsg.ListenerType})
	sendDelta(t, stream, subscribeClusters("c"))
	resp := recvDelta(t, stream)
	if resp.GetTypeUrl() != xdsmsg.ClusterType || !slices.Equal(resp.GetRemovedResources(), []string{"edited"}) {
		t.Errorf("got %v", resp)
	}
	if f.Store().Get(xdsmsg.ClusterType, "c") == nil {
		t.Error("the hook reached into the store")
	}
	sendDelta(t, stream, subscribeClusters("forbidden"))
	if _, err := stream.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the stream ended with %v", err)
	}
}

func TestServer_SendOnDeltaStream(t *testing.T) {
	t.Parallel()
	ctx, f := testutils.Context(t), xdstest.StartServer(t)
	f.Set(t, xdsmsg.EDSCluster("a", ""), xdsmsg.EDSCluster("b", ""))
	stream := openDelta(ctx, t, f)
	resume := f.StallSends()
	sendDelta(t, stream, subscribeClusters("a"))
	f.MustWait(ctx, t, xdstest.AnyRequest())
	if err := f.Send(&discoverypb.DeltaDiscoveryResponse{
		TypeUrl: xdsmsg.ClusterType, Nonce: "mine", RemovedResources: []string{"a"},
	}); err != nil {
		t.Fatal(err)
	}
	if got := recvDelta(t, stream); got.GetNonce() != "mine" {
		t.Errorf("got %v through the stall", got)
	}
	resume()
	real := recvDelta(t, stream)
	sendDelta(t, stream, &discoverypb.DeltaDiscoveryRequest{
		TypeUrl: xdsmsg.ClusterType, ResponseNonce: "mine", ResourceNamesSubscribe: []string{"b"},
		ErrorDetail: &statuspb.Status{Code: 3, Message: "rejected"},
	})
	if nack := f.MustWait(ctx, t, xdstest.NACKOf(xdsmsg.ClusterType)); nack.Nonce != "mine" {
		t.Errorf("recorded: %s", nack)
	}
	if got := recvDelta(t, stream).GetResources(); len(got) != 1 || got[0].GetName() != "b" {
		t.Errorf("for the new subscription came %v", got)
	}
	if got := f.Clients()[0].Types[0]; got.NACK != nil || got.Reply != controlplane.ReplyAwaited || real.GetNonce() == "" {
		t.Errorf("the control plane took the NACK for one of its own: %+v", got)
	}
}

func TestServer_BreakStreamsEndsDeltaStreams(t *testing.T) {
	t.Parallel()
	ctx, f := testutils.Context(t), xdstest.StartServer(t)
	stream := openDelta(ctx, t, f)
	if err := f.WaitOpen(ctx, 1); err != nil {
		t.Fatal(err)
	}
	f.BreakStreams(status.Error(codes.Aborted, "broken"))
	if _, err := stream.Recv(); status.Code(err) != codes.Aborted {
		t.Errorf("the stream ended with %v", err)
	}
}
