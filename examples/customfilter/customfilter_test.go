package customfilter_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	xdspb "github.com/cncf/xds/go/xds/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds"
	_ "github.com/dynxds/dynxds/examples/customfilter"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/testutils/xdsmsg"
)

// tenant is the filter's configuration as a control plane sends it.
func tenant(t *testing.T, name string) *xdspb.TypedStruct {
	value, err := structpb.NewStruct(map[string]any{"tenant": name})
	if err != nil {
		t.Fatal(err)
	}
	return &xdspb.TypedStruct{TypeUrl: "type.googleapis.com/example.v1.Tenant", Value: value}
}

// The control plane configures the filter for all RPCs, and overrides it on the
// route of one method and on that of another.
func TestTheControlPlaneConfiguresTheFilter(t *testing.T) {
	t.Parallel()
	const service = "echo.example.com"
	backend := testutils.StartBackend(t, "backend")
	server := testutils.StartFakeServer(t)
	overridden := xdsmsg.PathRoute("/grpc.testing.TestService/UnaryCall", "cluster")
	overridden.TypedPerFilterConfig = map[string]*anypb.Any{"tenant": xdsmsg.Any(tenant(t, "initech"))}
	forbidden := xdsmsg.PathRoute("/grpc.testing.TestService/StreamingInputCall", "cluster")
	forbidden.TypedPerFilterConfig = map[string]*anypb.Any{"tenant": xdsmsg.Any(tenant(t, ""))}
	server.Set(t,
		xdsmsg.DefaultListener(service, "routes", xdsmsg.Filter("tenant", tenant(t, "acme"))),
		xdsmsg.RouteConfig("routes", service, overridden, forbidden, xdsmsg.PrefixRoute("", "cluster")),
		xdsmsg.EDSCluster("cluster", ""),
		xdsmsg.SimpleEndpoints("cluster", backend.Addr()),
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

// TestDocs: docs/filters.md shows the filter as it is.
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
