package configselector_test

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/dynxds/dynxds/configselector"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

func newClientConn(t testing.TB) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///unused", grpc.WithTransportCredentials(insecure.NewCredentials()))
	xdstest.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	return cc
}

// parsed fills a message in from a text proto.
func parsed[M proto.Message](m M, text string) M {
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		panic(fmt.Sprintf("%v in %s", err, text))
	}
	return m
}

// newSelector returns the selector of one virtual host with the given routes,
// decoded as they would be from the wire.
func newSelector(t testing.TB, listener *xdsresource.Listener, routes ...*routepb.Route) *configselector.Selector {
	t.Helper()
	packed, err := anypb.New(&routepb.RouteConfiguration{
		Name:         "routes",
		VirtualHosts: []*routepb.VirtualHost{{Name: "host", Domains: []string{"*"}, Routes: routes}},
	})
	xdstest.NoError(t, err)
	value, err := xdsresource.RouteConfigurationType.Decode(packed, xdsclient.DecodeOptions{})
	xdstest.NoError(t, err)
	ch := configselector.NewChannel(newClientConn(t), "", false, nil)
	return ch.NewSelector(configselector.Config{
		Version:         7,
		Listener:        listener,
		VirtualHost:     value.(*xdsresource.RouteConfiguration).VirtualHost("any"),
		RouteConfigName: "routes",
	})
}

// unary runs a unary RPC and returns the context that gRPC would get.
func unary(ctx context.Context, s *configselector.Selector, method string, opts ...grpc.CallOption) (given context.Context, err error) {
	err = s.Unary(ctx, method, nil, nil, nil,
		func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			given = ctx
			return nil
		}, opts)
	return given, err
}

// mustUnary is unary for an RPC that succeeds.
func mustUnary(t testing.TB, ctx context.Context, s *configselector.Selector, method string, opts ...grpc.CallOption) context.Context {
	t.Helper()
	given, err := unary(ctx, s, method, opts...)
	xdstest.NoError(t, err)
	return given
}
