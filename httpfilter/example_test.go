package httpfilter_test

import (
	"context"
	"fmt"
	"log"

	xdspb "github.com/cncf/xds/go/xds/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/httpfilter"
)

// tenantConfig names the header without which RPCs are refused.
type tenantConfig struct{ Header string }

// tenantFilter is the filter. A program registers it: httpfilter.Register(tenantFilter).
var tenantFilter = httpfilter.HeaderFilter[tenantConfig]{
	Types: []string{"type.googleapis.com/example.v1.Tenant"},
	Parse: httpfilter.ParseStruct[tenantConfig],
	Start: func(ctx context.Context, rpc *httpfilter.RPC, config tenantConfig) (context.Context, error) {
		md, _ := metadata.FromOutgoingContext(ctx)
		if len(md.Get(config.Header)) == 0 {
			return nil, status.Errorf(codes.PermissionDenied, "%s has no %s", rpc.Method, config.Header)
		}
		return ctx, nil
	},
}

// printer is the end of a chain: it prints the RPCs that the filters let through.
type printer struct{}

func (printer) Send(ctx context.Context, rpc *httpfilter.RPC) (grpc.ClientStream, error) {
	fmt.Println("sent", rpc.Method)
	return httpfilter.EndedStream(ctx, nil, nil), nil
}

// A filter, configured as a control plane does and run in a chain as a channel does.
func Example() {
	fields, err := structpb.NewStruct(map[string]any{"Header": "x-tenant"})
	if err != nil {
		log.Fatal(err)
	}
	wire, err := anypb.New(&xdspb.TypedStruct{TypeUrl: tenantFilter.Types[0], Value: fields})
	if err != nil {
		log.Fatal(err)
	}
	config, err := tenantFilter.ParseConfig(wire)
	if err != nil {
		log.Fatal(err)
	}
	instance := tenantFilter.NewClientInstance(httpfilter.ClientInstanceInfo{Name: "tenant", Target: "xds:///echo.example.com"})
	interceptor, err := instance.ClientInterceptor(config, nil)
	if err != nil {
		log.Fatal(err)
	}

	chain := httpfilter.NewNext(printer{}, interceptor)
	_, err = chain.NewStream(context.Background(), &httpfilter.RPC{Method: "/echo.Echo/Say"})
	fmt.Println(err)
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-tenant", "acme")
	_, err = chain.NewStream(ctx, &httpfilter.RPC{Method: "/echo.Echo/Say"})
	fmt.Println(err)
	// Output:
	// rpc error: code = PermissionDenied desc = /echo.Echo/Say has no x-tenant
	// sent /echo.Echo/Say
	// <nil>
}
