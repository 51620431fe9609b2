package customfilter_test

import (
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	_ "github.com/cncf/xds/go/xds/type/v3"
	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds"
	_ "github.com/dynxds/dynxds/examples/customfilter"
	"github.com/dynxds/dynxds/testutils"
)

// resource reads a resource in JSON, in which TENANT(name) stands for the filter's configuration for a tenant.
func resource[M proto.Message](t *testing.T, m M, text string) M {
	t.Helper()
	tenant := `{"@type": "type.googleapis.com/xds.type.v3.TypedStruct", "type_url": "type.googleapis.com/example.v1.Tenant", "value": {"tenant": "$1"}}`
	if err := protojson.Unmarshal([]byte(regexp.MustCompile(`TENANT\((.*?)\)`).ReplaceAllString(text, tenant)), m); err != nil {
		t.Fatal(err)
	}
	return m
}

// The listener has the filter for all RPCs, and the routes of two methods override it.
const listener = `{"name": "echo.example.com", "api_listener": {"api_listener": {
	"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
	"http_filters": [
		{"name": "tenant", "typed_config": TENANT(acme)},
		{"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}
	],
	"route_config": {"virtual_hosts": [{"name": "echo", "domains": ["echo.example.com"], "routes": [
		{"match": {"path": "/grpc.testing.TestService/UnaryCall"}, "route": {"cluster": "cluster"},
			"typed_per_filter_config": {"tenant": TENANT(initech)}},
		{"match": {"path": "/grpc.testing.TestService/StreamingInputCall"}, "route": {"cluster": "cluster"},
			"typed_per_filter_config": {"tenant": TENANT()}},
		{"match": {"prefix": ""}, "route": {"cluster": "cluster"}}
	]}]}
}}}`

const cluster = `{"name": "cluster", "type": "STATIC", "load_assignment": {"cluster_name": "cluster", "endpoints": [{
	"load_balancing_weight": 1, "lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "HOST", "port_value": PORT}}}}]
}]}}`

// The control plane configures the filter for all RPCs, and overrides it on the
// route of one method and on that of another.
func TestTheControlPlaneConfiguresTheFilter(t *testing.T) {
	t.Parallel()
	backend := testutils.StartBackend(t, "backend")
	host, port, _ := net.SplitHostPort(backend.Addr())
	server := testutils.StartFakeServer(t)
	server.Set(t, resource(t, new(listenerpb.Listener), listener),
		resource(t, new(clusterpb.Cluster), strings.NewReplacer("HOST", host, "PORT", port).Replace(cluster)))
	opts := append(dynxds.DialOptions(dynxds.WithBootstrap(server.Bootstrap("example"))),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	cc, err := grpc.NewClient("xds:///echo.example.com", opts...)
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
