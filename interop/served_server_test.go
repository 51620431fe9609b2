package interop_test

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// whoCalls answers UnaryCall with the SPIFFE ID of the client.
type whoCalls struct {
	testpb.UnimplementedTestServiceServer
}

func (whoCalls) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	p, _ := grpcpeer.FromContext(ctx)
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || info.SPIFFEID == nil {
		return &testpb.SimpleResponse{Hostname: "unknown"}, nil
	}
	return &testpb.SimpleResponse{Hostname: info.SPIFFEID.String()}, nil
}

// startXDSServer serves with gRPC-Go's xds until the test ends. The channel gets the changes of its serving mode.
func startXDSServer(t testing.TB, bootstrap []byte, listener net.Listener, service testpb.TestServiceServer, opts ...grpc.ServerOption) <-chan xds.ServingModeChangeArgs {
	t.Helper()
	creds, err := xdscreds.NewServerCredentials(xdscreds.ServerOptions{FallbackCreds: insecure.NewCredentials()})
	xdstest.NoError(t, err)
	modes := make(chan xds.ServingModeChangeArgs, 16)
	server, err := xds.NewGRPCServer(append(opts, grpc.Creds(creds), xds.BootstrapContentsForTesting(bootstrap), grpc.WaitForHandlers(true),
		xds.ServingModeCallback(func(_ net.Addr, args xds.ServingModeChangeArgs) { modes <- args }))...)
	xdstest.NoError(t, err)
	testpb.RegisterTestServiceServer(server, service)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return modes
}

// gRFC A29, A36: one document configures mTLS for the server and its clients, by plain names and under an authority. The
// server rejects clients without a certificate.
func TestGRPCGoServerOfServe(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	document := func(mode string) string {
		return fmt.Sprintf("kind: Service\nname: echo\nendpoints: [{address: %q}]\ntls: {mode: %s, subjectAltNames: [spiffe://mesh/echo]}\n", listener.Addr(), mode)
	}
	f := serveFolder(t, map[string]string{"services.yaml": document("mutual")})
	certs := t.TempDir()
	example := exec.CommandContext(t.Context(), "go", "run", "github.com/dynxds/dynxds/examples/certs", certs, "echo", "caller")
	if out, err := example.CombinedOutput(); err != nil {
		t.Fatalf("examples/certs: %v\n%s", err, out)
	}
	roots := []string{"--mesh-ca", filepath.Join(certs, "ca.pem")}
	identity := func(name string) []string {
		return append(roots[:2:2], "--mesh-cert", filepath.Join(certs, name+".pem"), "--mesh-key", filepath.Join(certs, name+"-key.pem"))
	}
	modes := startXDSServer(t, f.bootstrap("echo", "v1", identity("echo")...), listener, whoCalls{})
	if args := <-modes; args.Mode != connectivity.ServingModeServing {
		t.Fatalf("the server is in mode %v: %v", args.Mode, args.Err)
	}

	client := func(k servedKind, args []string) testpb.TestServiceClient {
		creds, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
		xdstest.NoError(t, err)
		return testpb.NewTestServiceClient(dial(t, f.builder(k, "caller", "v1", args...), k.target("echo"), grpc.WithTransportCredentials(creds)))
	}
	for _, k := range servedKinds {
		answer, err := client(k, identity("caller")).UnaryCall(testutils.Context(t), &testpb.SimpleRequest{})
		if err != nil || answer.GetHostname() != "spiffe://mesh/caller" {
			t.Errorf("%v: the server says that the client is %q, %v", k, answer.GetHostname(), err)
		}
		_, err = client(k, roots).UnaryCall(testutils.Context(t), &testpb.SimpleRequest{})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%v, without a certificate: the RPC ended with %v, want UNAVAILABLE", k, err)
		}
	}

	// New connections are asked for no certificate.
	f.reload("services.yaml", document("simple"), "published")
	expectSimple(t, client(servedKind{peer: ours}, roots))
}

// expectSimple makes RPCs until the server does not know the client.
func expectSimple(t *testing.T, client testpb.TestServiceClient) {
	t.Helper()
	ctx := testutils.Context(t)
	for ctx.Err() == nil {
		answer, err := client.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.WaitForReady(true))
		if err == nil && answer.GetHostname() == "unknown" {
			return
		}
	}
	t.Error("in mode simple no RPC was answered")
}
