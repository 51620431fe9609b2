package interop_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/testutils"
)

// TestGRPCGoIsNeverMisrouted: given the folder of TestOtherLanguagesAreNeverMisrouted,
// then RPCs of gRPC-Go's xds and of dynxds go the same ways; those of dynxds are told
// where the redirect leads.
func TestGRPCGoIsNeverMisrouted(t *testing.T) {
	t.Parallel()
	v1, v2 := testutils.StartBackend(t, "v1"), testutils.StartBackend(t, "v2")
	f := serveFolder(t, map[string]string{"mesh.yaml": beyondGRPC(v1.Addr(), v2.Addr(), "127.0.0.1:1")})
	for name, newBuilder := range map[string]func(bootstrap []byte) (grpcresolver.Builder, error){
		"gRPC-Go's xds": xds.NewXDSResolverWithConfigForTesting, "dynxds": resolver.NewBuilder,
	} {
		b, err := newBuilder(f.bootstrap("frontend", "v1"))
		xdstest.NoError(t, err)
		cc := dial(t, b, "xds:///echo")
		calls, want := beyondGRPCCalls()
		for _, call := range calls {
			rpc := invoke(t, cc, call)
			if rpc.outcome() != want[call.Name] && (name != "dynxds" || call.Name != "redirect") {
				t.Errorf("%s: %+v, want %s", name, rpc, want[call.Name])
			}
			if name == "dynxds" && call.Name == "redirect" && !strings.Contains(rpc.Error, "elsewhere") {
				t.Errorf("the error of a redirect is %+v, want where it leads", rpc)
			}
		}
	}
}

// invoke makes one RPC.
func invoke(t *testing.T, cc *grpc.ClientConn, call otherCall) otherRPC {
	t.Helper()
	ctx := testutils.Context(t)
	for key, value := range call.Metadata {
		ctx = metadata.AppendToOutgoingContext(ctx, key, value)
	}
	rpc := otherRPC{Call: call.Name}
	var header metadata.MD
	if err := cc.Invoke(ctx, call.Method, &emptypb.Empty{}, &emptypb.Empty{}, grpc.Header(&header)); err != nil {
		rpc.Code, rpc.Error = int(status.Code(err)), err.Error()
	}
	rpc.Backend = strings.Join(header.Get(testutils.BackendIDHeader), ",")
	return rpc
}
