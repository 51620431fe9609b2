package customfilter_test

import (
	"fmt"
	"net/netip"
	"os"
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
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds"
	_ "github.com/dynxds/dynxds/examples/customfilter"
	"github.com/dynxds/dynxds/testutils"
)

// The control plane's configuration: the filter for all RPCs, with overrides on the routes of two methods.
const (
	listener = `
name: "echo.example.com"
api_listener { api_listener { [type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager] {
  http_filters { name: "tenant" typed_config { [type.googleapis.com/xds.type.v3.TypedStruct] {
    type_url: "type.googleapis.com/example.v1.Tenant"
    value { fields { key: "tenant" value { string_value: "acme" } } }
  } } }
  http_filters { name: "router" typed_config { [type.googleapis.com/envoy.extensions.filters.http.router.v3.Router] {} } }
  route_config { virtual_hosts {
    name: "echo" domains: "echo.example.com"
    routes {
      match { path: "/grpc.testing.TestService/UnaryCall" } route { cluster: "cluster" }
      typed_per_filter_config { key: "tenant" value { [type.googleapis.com/xds.type.v3.TypedStruct] {
        type_url: "type.googleapis.com/example.v1.Tenant"
        value { fields { key: "tenant" value { string_value: "initech" } } }
      } } }
    }
    routes {
      match { path: "/grpc.testing.TestService/StreamingInputCall" } route { cluster: "cluster" }
      typed_per_filter_config { key: "tenant" value { [type.googleapis.com/xds.type.v3.TypedStruct] {
        type_url: "type.googleapis.com/example.v1.Tenant"
        value { fields { key: "tenant" value { string_value: "" } } }
      } } }
    }
    routes { match { prefix: "" } route { cluster: "cluster" } }
  } }
} } }`
	// The verbs are for the IP address and the port of the backend.
	cluster = `
name: "cluster" type: STATIC
load_assignment { cluster_name: "cluster" endpoints {
  load_balancing_weight { value: 1 }
  lb_endpoints { endpoint { address { socket_address { address: %q port_value: %d } } } }
} }`
)

// parse reads a message in the text format of protobuf.
func parse[M proto.Message](t *testing.T, m M, text string) M {
	t.Helper()
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTheControlPlaneConfiguresTheFilter(t *testing.T) {
	t.Parallel()
	const service = "echo.example.com"
	backend := testutils.StartBackend(t, "backend")
	addr := netip.MustParseAddrPort(backend.Addr())
	server := testutils.StartFakeServer(t)
	server.Set(t, parse(t, new(listenerpb.Listener), listener),
		parse(t, new(clusterpb.Cluster), fmt.Sprintf(cluster, addr.Addr(), addr.Port())))
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

// The filter in docs/tasks/filters.md is that of customfilter.go.
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
	if !strings.Contains(read("../../docs/tasks/filters.md"), "// Config is"+filter) {
		t.Error("docs/tasks/filters.md shows another filter than customfilter.go")
	}
}
