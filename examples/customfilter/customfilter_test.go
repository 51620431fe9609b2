package customfilter_test

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	xdspb "github.com/cncf/xds/go/xds/type/v3"
	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds"
	_ "github.com/dynxds/dynxds/examples/customfilter"
	"github.com/dynxds/dynxds/testutils"
)

// tenant is the filter's configuration as a control plane sends it.
func tenant(t *testing.T, name string) *xdspb.TypedStruct {
	value, err := structpb.NewStruct(map[string]any{"tenant": name})
	if err != nil {
		t.Fatal(err)
	}
	return &xdspb.TypedStruct{TypeUrl: "type.googleapis.com/example.v1.Tenant", Value: value}
}

func pack(t *testing.T, m proto.Message) *anypb.Any {
	packed, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// httpFilter is a filter of the listener with its configuration.
func httpFilter(t *testing.T, name string, config proto.Message) *hcmpb.HttpFilter {
	return &hcmpb.HttpFilter{Name: name, ConfigType: &hcmpb.HttpFilter_TypedConfig{TypedConfig: pack(t, config)}}
}

// routeOf sends what matches to the cluster; a tenant overrides that of the listener.
func routeOf(t *testing.T, match *routepb.RouteMatch, overrides ...*xdspb.TypedStruct) *routepb.Route {
	r := &routepb.Route{Match: match, Action: &routepb.Route_Route{Route: &routepb.RouteAction{
		ClusterSpecifier: &routepb.RouteAction_Cluster{Cluster: "cluster"},
	}}}
	for _, o := range overrides {
		r.TypedPerFilterConfig = map[string]*anypb.Any{"tenant": pack(t, o)}
	}
	return r
}

func path(path string) *routepb.RouteMatch {
	return &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_Path{Path: path}}
}

// address is that of a backend, "IP:port".
func address(t *testing.T, text string) *corepb.Address {
	addr, err := netip.ParseAddrPort(text)
	if err != nil {
		t.Fatal(err)
	}
	return &corepb.Address{Address: &corepb.Address_SocketAddress{SocketAddress: &corepb.SocketAddress{
		Address:       addr.Addr().String(),
		PortSpecifier: &corepb.SocketAddress_PortValue{PortValue: uint32(addr.Port())},
	}}}
}

// The control plane configures the filter for all RPCs, and overrides it on the
// route of one method and on that of another.
func TestTheControlPlaneConfiguresTheFilter(t *testing.T) {
	t.Parallel()
	const service = "echo.example.com"
	backend := testutils.StartBackend(t, "backend")
	server := testutils.StartFakeServer(t)
	server.Set(t,
		&listenerpb.Listener{Name: service, ApiListener: &listenerpb.ApiListener{ApiListener: pack(t, &hcmpb.HttpConnectionManager{
			HttpFilters: []*hcmpb.HttpFilter{
				httpFilter(t, "tenant", tenant(t, "acme")),
				httpFilter(t, "router", new(routerpb.Router)),
			},
			RouteSpecifier: &hcmpb.HttpConnectionManager_RouteConfig{RouteConfig: &routepb.RouteConfiguration{
				VirtualHosts: []*routepb.VirtualHost{{Name: "echo", Domains: []string{service}, Routes: []*routepb.Route{
					routeOf(t, path("/grpc.testing.TestService/UnaryCall"), tenant(t, "initech")),
					routeOf(t, path("/grpc.testing.TestService/StreamingInputCall"), tenant(t, "")),
					routeOf(t, &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_Prefix{}}),
				}}},
			}},
		})}},
		&clusterpb.Cluster{
			Name:                 "cluster",
			ClusterDiscoveryType: &clusterpb.Cluster_Type{Type: clusterpb.Cluster_STATIC},
			LoadAssignment: &endpointpb.ClusterLoadAssignment{ClusterName: "cluster", Endpoints: []*endpointpb.LocalityLbEndpoints{{
				LoadBalancingWeight: wrapperspb.UInt32(1),
				LbEndpoints: []*endpointpb.LbEndpoint{{HostIdentifier: &endpointpb.LbEndpoint_Endpoint{
					Endpoint: &endpointpb.Endpoint{Address: address(t, backend.Addr())},
				}}},
			}}},
		},
	)
	opts := append(dynxds.DialOptions(dynxds.WithBootstrap(server.Bootstrap("example"))),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	cc, err := grpc.NewClient("xds:///"+service, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	ctx, client := testutils.Context(t), testgrpc.NewTestServiceClient(cc)

	if _, err := client.EmptyCall(ctx, new(testgrpc.Empty)); err != nil {
		t.Fatal(err)
	}
	if got := backend.Last().Metadata["x-tenant"]; !slices.Equal(got, []string{"acme"}) {
		t.Errorf("the backend saw x-tenant %q, want that of the listener", got)
	}
	if _, err := client.UnaryCall(ctx, new(testgrpc.SimpleRequest)); err != nil {
		t.Fatal(err)
	}
	if got := backend.Last().Metadata["x-tenant"]; !slices.Equal(got, []string{"initech"}) {
		t.Errorf("the backend saw x-tenant %q, want that of the route", got)
	}
	if _, err := client.StreamingInputCall(ctx); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a streaming RPC without tenant: %v, want PERMISSION_DENIED", err)
	}
}

// Docs/filters.md shows the filter as it is.
func TestDocs(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	_, filter, _ := strings.Cut(read("customfilter.go"), "package customfilter\n")
	_, filter, _ = strings.Cut(filter, "// Config is")
	if !strings.Contains(read("../../docs/filters.md"), "// Config is"+filter) {
		t.Error("docs/filters.md shows another filter than customfilter.go")
	}
}
