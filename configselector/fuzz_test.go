package configselector_test

import (
	"context"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
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
func everyAction() *routepb.RouteConfiguration {
	add := []*corepb.HeaderValueOption{{Header: &corepb.HeaderValue{Key: "k", Value: "v"}}}
	rewritten := toCluster("/r", "c")
	rewritten.RequestHeadersToAdd, rewritten.ResponseHeadersToAdd = add, add
	a := rewritten.GetRoute()
	a.RegexRewrite = &matcherpb.RegexMatchAndSubstitute{Pattern: &matcherpb.RegexMatcher{Regex: "/(.*)"}, Substitution: `/x\1`}
	a.HostRewriteSpecifier = &routepb.RouteAction_HostRewriteHeader{HostRewriteHeader: "h"}
	a.RetryPolicy = &routepb.RetryPolicy{RetryOn: "unavailable"}
	a.RequestMirrorPolicies = []*routepb.RouteAction_RequestMirrorPolicy{{Cluster: "c"}}
	a.HashPolicy = []*routepb.RouteAction_HashPolicy{{PolicySpecifier: &routepb.RouteAction_HashPolicy_Header_{
		Header: &routepb.RouteAction_HashPolicy_Header{HeaderName: "h"},
	}}}
	byHeader := toCluster("/h", "")
	byHeader.GetRoute().ClusterSpecifier = &routepb.RouteAction_ClusterHeader{ClusterHeader: "to"}
	respond, redirect := toCluster("/d", ""), toCluster("/e", "")
	respond.Action = &routepb.Route_DirectResponse{DirectResponse: &routepb.DirectResponseAction{Status: 503}}
	redirect.Action = &routepb.Route_Redirect{Redirect: &routepb.RedirectAction{HostRedirect: "x"}}
	return &routepb.RouteConfiguration{Name: "r", VirtualHosts: []*routepb.VirtualHost{{
		Domains: []string{"*"}, Routes: []*routepb.Route{rewritten, byHeader, respond, redirect, toCluster("/", "c")},
	}}}
}

// FuzzSelect: whatever bytes a control plane sends, an RPC of any kind gets either to
// gRPC, with a path and a cluster, or a status.
func FuzzSelect(f *testing.F) {
	seed, err := proto.Marshal(everyAction())
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
		_, value, err := xdsresource.RouteConfigurationType.Decode(resource, options)
		if err != nil {
			return
		}
		ch := configselector.NewChannel(cc, "a.b", false, nil)
		defer ch.Close()
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
			s.Retire()
		}
	})
}
