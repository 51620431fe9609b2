package command

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/testutils"
)

// dialBackend is a client of dynxds with the bootstrap that these arguments of
// "dynxds bootstrap" give.
func dialBackend(t *testing.T, target string, args ...string) testpb.TestServiceClient {
	t.Helper()
	bootstrap := runOK(t, append([]string{"bootstrap"}, args...)...)
	return testpb.NewTestServiceClient(cmdtest.DialXDS(t, target, []byte(bootstrap)))
}

// Clients with a bootstrap of "dynxds bootstrap --tls" reach their backends, by plain names and
// under an authority; without a certificate, or without trust, RPCs fail and say why.
func TestServeOverTLS(t *testing.T) {
	t.Parallel()
	server, client := testca.New(t), testca.New(t)
	ofServer, ofClient := testca.NewFiles(t), testca.NewFiles(t)
	ofServer.Issue(server)
	ofClient.Issue(client)
	backend := testutils.StartBackend(t, "backend")
	dir := t.TempDir()
	cmdtest.Write(t, dir, "services.yaml", fmt.Sprintf("kind: Service\nname: backend\nendpoints: [{address: %q}]\n", backend.Addr()))
	p := startServe(t, dir, "--authority", "mesh",
		"--tls-cert", ofServer.Cert, "--tls-key", ofServer.Key, "--client-ca", ofClient.CA)
	addr := p.address()

	trust := []string{"--server", addr, "--id", "client", "--tls", "--ca", ofServer.CA}
	identity := []string{"--cert", ofClient.Cert, "--key", ofClient.Key}
	for _, test := range []struct {
		name, target string
		args         []string
	}{
		{"plain names", "xds:///backend", nil},
		{"delta", "xds:///backend", []string{"--feature", "delta"}},
		{"an authority", "xds://mesh/backend", []string{"--authority", "mesh"}},
	} {
		args := append(append(append([]string{}, trust...), identity...), test.args...)
		if _, err := dialBackend(t, test.target, args...).UnaryCall(testutils.Context(t), &testpb.SimpleRequest{}); err != nil {
			t.Errorf("%s: the RPC failed: %v", test.name, err)
		}
	}
	for _, test := range []struct {
		name string
		args []string
	}{
		{"a client without a certificate", trust},
		{"a client that does not trust the server", append([]string{"--server", addr, "--id", "client", "--tls", "--ca", ofClient.CA}, identity...)},
		{"a client without TLS", []string{"--server", addr, "--id", "client"}},
	} {
		_, err := dialBackend(t, "xds:///backend", test.args...).UnaryCall(testutils.Context(t), &testpb.SimpleRequest{})
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), addr) {
			t.Errorf("%s: the RPC ended with %v, want UNAVAILABLE that names the control plane", test.name, err)
		}
	}
	p.drain()
}
