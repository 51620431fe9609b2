package command

import (
	"bufio"
	"context"
	"crypto/tls"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	adminpb "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
)

// another is a process that is not of dynxds.
type another struct {
	statuspb.UnimplementedClientStatusDiscoveryServiceServer
	// changes says that the version is another one from the fourth answer on.
	changes bool
	answers atomic.Int32
}

func (a *another) FetchClientStatus(context.Context, *statuspb.ClientStatusRequest) (*statuspb.ClientStatusResponse, error) {
	version := "1"
	if a.changes && a.answers.Add(1) > 3 {
		version = "2"
	}
	entry := func(name string, state adminpb.ClientResourceStatus) *statuspb.ClientConfig_GenericXdsConfig {
		config := xdsmsg.Any(xdsmsg.EDSCluster(name, ""))
		return &statuspb.ClientConfig_GenericXdsConfig{TypeUrl: config.GetTypeUrl(), Name: name, ClientStatus: state, VersionInfo: version, XdsConfig: config}
	}
	return &statuspb.ClientStatusResponse{Config: []*statuspb.ClientConfig{{
		Node: &corepb.Node{Id: "other"},
		GenericXdsConfigs: []*statuspb.ClientConfig_GenericXdsConfig{
			entry("shop/a", adminpb.ClientResourceStatus_ACKED), entry("shop/b", adminpb.ClientResourceStatus_NACKED), entry("bank", adminpb.ClientResourceStatus_NACKED),
		},
	}}}, nil
}

func (a *another) serve(t *testing.T, opts ...grpc.ServerOption) string {
	return cmdtest.Serve(t, func(s *grpc.Server) { statuspb.RegisterClientStatusDiscoveryServiceServer(s, a) }, opts...)
}

// With --watch an answer is printed when it differs from the one before, until the command is interrupted.
func TestWatch(t *testing.T) {
	t.Parallel()
	service := &another{changes: true}
	cmd := command(t, "status", service.serve(t), "--watch=20ms", "--name", "bank")
	stdout, err := cmd.StdoutPipe()
	xdstest.NoError(t, err)
	xdstest.NoError(t, cmd.Start())
	const head = "client \"other\"|  connection state unknown: the process says only what its xDS client holds|"
	got := ""
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if got += lines.Text() + "|"; strings.Contains(lines.Text(), `version "2"`) {
			xdstest.NoError(t, cmd.Process.Signal(os.Interrupt))
		}
	}
	xdstest.NoError(t, cmd.Wait())
	if want := head + `  Cluster bank: NACKED, version "1"||` + head + `  Cluster bank: NACKED, version "2"|`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// An answer that is no is watched as any other.
func TestWatchOfAFailure(t *testing.T) {
	t.Parallel()
	cmd := command(t, "explain", exampleMesh, "--service", "backend", "/pkg.Service/Method", "--expect", "nowhere", "--watch=20ms")
	stdout, err := cmd.StdoutPipe()
	xdstest.NoError(t, err)
	xdstest.NoError(t, cmd.Start())
	said := false
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "dynxds: RPCs do not go as --expect says") {
			said = true
			xdstest.NoError(t, cmd.Process.Signal(os.Interrupt))
		}
	}
	if err := cmd.Wait(); !said || err != nil {
		t.Errorf("the failure is shown: %v; the end: %v", said, err)
	}
}

// Processes with TLS and mTLS.
func TestStatusOverTLS(t *testing.T) {
	t.Parallel()
	ca, files := testca.New(t), testca.NewFiles(t)
	files.Issue(ca)
	simple, mutual := ca.ServerConfig(), ca.ServerConfig()
	simple.ClientAuth, mutual.ClientCAs, mutual.ClientAuth = tls.NoClientCert, ca.Pool(), tls.RequireAndVerifyClientCert
	one, both := new(another).serve(t, grpc.Creds(credentials.NewTLS(simple))), new(another).serve(t, grpc.Creds(credentials.NewTLS(mutual)))
	for _, test := range []struct {
		process, flags string
		exit           int
		want           string
	}{
		{one, "--ca CA --server-name localhost --timeout 5s", 0, `client "other"`},
		{one, "--insecure", 0, `client "other"`},
		{both, "--ca CA --cert CERT --key KEY --server-name localhost", 0, `client "other"`},
		{one, "", 3, "is it the address of a gRPC server without TLS? --tls and --ca are for one with TLS"},
		{one, "--tls --server-name localhost", 3, "certificate signed by unknown authority"},
		{one, "--ca CA --server-name other", 3, "not other"},
		{both, "--ca CA --server-name localhost", 3, "is it the address of a gRPC server with TLS? --ca and --server-name say whom to trust"},
		{both, "--cert CERT", 2, "--cert and --key need each other"},
		{both, "--ca KEY", 2, "there is no certificate in it"},
		{both, "--cert CERT --key CA", 2, "--cert, --key: tls: "},
	} {
		args := strings.Fields(strings.NewReplacer("CA", files.CA, "CERT", files.Cert, "KEY", files.Key).Replace(test.flags))
		stdout, stderr, exit := run(t, append([]string{"status", test.process}, args...)...)
		if exit != test.exit || !strings.Contains(stdout+stderr, test.want) {
			t.Errorf("%q: exit status %d, want %d with %q:\n%s%s", test.flags, exit, test.exit, test.want, stdout, stderr)
		}
	}
}
