package configselector_test

import (
	"context"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/configselector"
	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// everyAction is a RouteConfiguration with a route for each action.
const everyAction = `name: "r" virtual_hosts {
	domains: "*"
	routes {
		match { prefix: "/r" }
		request_headers_to_add { header { key: "k" value: "v" } }
		response_headers_to_add { header { key: "k" value: "v" } }
		route {
			cluster: "c"
			regex_rewrite { pattern { regex: "/(.*)" } substitution: "/x\\1" }
			host_rewrite_header: "h"
			retry_policy { retry_on: "unavailable" }
			request_mirror_policies { cluster: "c" }
			hash_policy { header { header_name: "h" } }
		}
	}
	routes { match { prefix: "/h" } route { cluster_header: "to" } }
	routes { match { prefix: "/d" } direct_response { status: 503 } }
	routes { match { prefix: "/e" } redirect { host_redirect: "x" } }
	routes { match { prefix: "/" } route { cluster: "c" } }
}`

// FuzzSelect: whatever bytes a control plane sends, an RPC of any kind gets either to
// gRPC, with a path and a cluster, or a status.
func FuzzSelect(f *testing.F) {
	seed, err := proto.Marshal(parsed(new(routepb.RouteConfiguration), everyAction))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed, "/r/m")
	f.Add(seed, "/h/m?q=1")
	f.Add(seed, "\xff")
	cc := newClientConn(f)
	options := xdsclient.DecodeOptions{Server: &bootstrap.Server{Features: []bootstrap.Feature{bootstrap.FeatureTrustedXDSServer}}}
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	f.Fuzz(func(t *testing.T, b []byte, method string) {
		resource := &anypb.Any{TypeUrl: typeurl.RouteConfiguration, Value: b}
		value, err := xdsresource.RouteConfigurationType.Decode(resource, options)
		if err != nil {
			return
		}
		ch := configselector.NewChannel(cc, "a.b", false, nil)
		given := func(ctx context.Context, to string) {
			d := decision.FromContext(ctx)
			if d == nil || d.Cluster == "" || d.WireMethod() != to || to != method && to[0] != '/' {
				t.Errorf("gRPC is given %q with the Decision %+v", to, d)
			}
			d.Hash()
		}
		invoker := func(ctx context.Context, method string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			given(ctx, method)
			return nil
		}
		streamer := func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			given(ctx, method)
			ended := status.Error(codes.NotFound, "ended")
			for _, o := range opts {
				if o, ok := o.(grpc.OnFinishCallOption); ok {
					o.OnFinish(ended)
				}
			}
			return httpfilter.EndedStream(ctx, ended, nil), nil
		}
		for _, vh := range value.(*xdsresource.RouteConfiguration).VirtualHosts {
			s := ch.NewSelector(configselector.Config{Version: 1, Listener: &xdsresource.Listener{}, VirtualHost: vh})
			ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "to", "c", "h", "x"))
			reply := bytesOf("")
			if err := s.Unary(ctx, method, bytesOf("x"), reply, cc, invoker, nil); err != nil && status.Code(err) == codes.OK {
				t.Errorf("%v is no status", err)
			}
			if stream, err := s.Stream(ctx, desc, cc, method, streamer, nil); err == nil {
				_ = stream.SendMsg(bytesOf("x"))
				if err := stream.RecvMsg(reply); err == nil {
					t.Error("a stream that has ended gives a message")
				}
			}
			cancel()
		}
	})
}
