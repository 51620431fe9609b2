package resolver

import (
	"os"
	"os/exec"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// A process without a bootstrap logs one error, which gRPC's default level shows, however many of its channels DNS resolves. The test
// has a process of its own for that.
func TestOneErrorIsLoggedWithoutABootstrap(t *testing.T) {
	t.Parallel()
	const inChild = "DYNXDS_TEST_WITHOUT_BOOTSTRAP"
	if os.Getenv(inChild) == "" {
		child := exec.CommandContext(testutils.Context(t), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
		child.Env = append(os.Environ(), inChild+"=1")
		if output, err := child.CombinedOutput(); err != nil {
			t.Errorf("%v:\n%s", err, output)
		}
		return
	}
	for _, name := range []string{"one.example.com", "two.example.com"} {
		b := &builder{scheme: scheme, environment: true, config: func() (*bootstrap.Config, error) { return nil, bootstrap.ErrNotConfigured }}
		cc, err := grpc.NewClient("xds:///"+name, grpc.WithResolvers(b), grpc.WithTransportCredentials(insecure.NewCredentials()))
		xdstest.NoError(t, err)
		defer cc.Close()
		if _, err := testgrpc.NewTestServiceClient(cc).EmptyCall(testutils.Context(t), new(testgrpc.Empty)); err == nil {
			t.Error("an RPC succeeded")
		}
	}
	xdstest.Equal(t, "warnings", 2, logged.Count("WARNING: [dynxds] ", ": resolved by DNS: "))
	xdstest.Equal(t, "errors", 1, logged.Count("ERROR: [dynxds] ", "xds:///one.example.com is resolved by DNS: no bootstrap is set; ", "GRPC_XDS_BOOTSTRAP"))
	xdstest.Equal(t, "all errors", 1, logged.Count("ERROR: "))
}
