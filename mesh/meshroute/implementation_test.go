package meshroute

import (
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

var implementations = map[Implementation]string{Dynxds: "dynxds", GRPCGo: "gRPC-Go", OtherGRPC: "other gRPC", Envoy: "Envoy"}

// The node's features and user agent determine the implementation; its metadata does not.
func TestImplementationOfANode(t *testing.T) {
	t.Parallel()
	parsed, err := bootstrap.Parse("test", []byte(`{"xds_servers": [{"server_uri": "a:1", "channel_creds": [{"type": "insecure"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	lies := &structpb.Struct{Fields: map[string]*structpb.Value{meshpolicy.RoutesKey: structpb.NewStringValue("all"), meshpolicy.AddressesKey: structpb.NewStringValue("all")}}
	for _, test := range []struct {
		node              *corepb.Node
		want              Implementation
		routes, addresses string
	}{
		{parsed.Node, Dynxds, "", ""},
		{&corepb.Node{UserAgentName: "gRPC Go", Metadata: lies}, GRPCGo, "grpc", ""},
		{&corepb.Node{UserAgentName: "gRPC Node Pure JS", Metadata: lies}, dialect.GRPCJS, "grpc", "ip"},
		{&corepb.Node{UserAgentName: "envoy"}, Envoy, "", "ip"},
		{nil, OtherGRPC, "grpc", "ip"},
	} {
		c := ClientFromNode(test.node)
		if c.Implementation != test.want || c.Tag(meshpolicy.RoutesKey) != test.routes || c.Tag(meshpolicy.AddressesKey) != test.addresses {
			t.Errorf("%v is %v with routes %q and addresses %q, want %+v", test.node, implementations[c.Implementation], c.Tag(meshpolicy.RoutesKey), c.Tag(meshpolicy.AddressesKey), test)
		}
	}
}
