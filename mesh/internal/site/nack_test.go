package site_test

import (
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/meshroute"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// A NACK that is repeated is logged once, with a text that is cut.
func TestARepeatedNACKIsLoggedOnce(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	r := start(t, "", map[string]string{"services.yaml": m.services()})
	stream := cmdtest.SotW(t, cmdtest.Dial(t, r.addr))
	request := &discoverypb.DiscoveryRequest{Node: &corepb.Node{Id: "stubborn"}, TypeUrl: meshroute.ClusterType}
	request.ResponseNonce = stream.Exchange(request).GetNonce()
	text := strings.Repeat("no good; ", 1000)
	request.ErrorDetail = status.New(codes.InvalidArgument, text).Proto()
	for range 5000 {
		stream.Send(request)
	}
	stream.Exchange(&discoverypb.DiscoveryRequest{TypeUrl: meshroute.ListenerType}) // comes after them
	r.logged("a client rejects a response", "node=stubborn", strings.Repeat("no good; ", 100), "(9000 bytes, sha256 ")
	if n := r.log.Count("no good"); n != 1 {
		t.Errorf("the log has %d lines of 5000 NACKs of one response", n)
	}
}
