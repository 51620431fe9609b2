package site_test

import (
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/meshroute"
	"github.com/dynxds/dynxds/testutils"
)

// A repeated NACK is logged once in full, then only counted.
func TestARepeatedNACKIsLoggedOnce(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	r := start(t, "", map[string]string{"services.yaml": m.services()})
	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	stream, err := discoverypb.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(testutils.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	send := func(req *discoverypb.DiscoveryRequest) {
		t.Helper()
		req.Node, req.TypeUrl = &corepb.Node{Id: "stubborn"}, meshroute.ClusterType
		if err := stream.Send(req); err != nil {
			t.Fatal(err)
		}
	}
	send(&discoverypb.DiscoveryRequest{})
	response, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("no good; ", 1000)
	for range 5000 {
		send(&discoverypb.DiscoveryRequest{ResponseNonce: response.GetNonce(), ErrorDetail: status.New(codes.InvalidArgument, text).Proto()})
	}
	send(&discoverypb.DiscoveryRequest{ResponseNonce: response.GetNonce(), ErrorDetail: status.New(codes.InvalidArgument, "still bad").Proto()})
	r.logged("a client rejects a response", "node=stubborn", "still bad")
	r.logged("a client rejects a response", "node=stubborn", strings.TrimSpace(text))
	r.logged("a client rejects a response", "node=stubborn", "repeated=")
	if n := r.log.Count("no good"); n > 20 {
		t.Errorf("the log has %d lines of 5000 NACKs that say the same", n)
	}
}
