package command

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	adminpb "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"go.yaml.in/yaml/v3"
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

// Of a process of another implementation the state of connections is unknown; --name and --state choose what is shown, in
// each form.
func TestStatusOfAnotherProcess(t *testing.T) {
	t.Parallel()
	process := new(another).serve(t)
	const head = "client \"other\"\n  connection state unknown: the process says only what its xDS client holds\n"
	for flags, want := range map[string]string{
		"--name shop*":               "  Cluster shop/a: ACKED, version \"1\"\n  Cluster shop/b: NACKED, version \"1\"\n",
		"--state nacked":             "  Cluster shop/b: NACKED, version \"1\"\n  Cluster bank: NACKED, version \"1\"\n",
		"--name ban? --state ACKED":  "",
		"--name bank --state=NACKED": "  Cluster bank: NACKED, version \"1\"\n",
	} {
		xdstest.Equal(t, flags, head+want, runOK(t, append([]string{"status", process}, strings.Fields(flags)...)...))
	}
	type report struct {
		Clients []struct {
			Node      string
			State     any
			Resources []struct{ Type, Name, State string }
		}
	}
	for format, decode := range map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": yaml.Unmarshal} {
		var r report
		if err := decode([]byte(runOK(t, "status", process, "-o", format, "--name", "bank")), &r); err != nil || len(r.Clients) != 1 ||
			r.Clients[0].Node != "other" || r.Clients[0].State != nil || len(r.Clients[0].Resources) != 1 || r.Clients[0].Resources[0].Name != "bank" {
			t.Errorf("-o %s: %+v, error %v", format, r, err)
		}
	}
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

// With --expect the exit status says whether all RPCs go where they should.
func TestExpect(t *testing.T) {
	t.Parallel()
	for expected, want := range map[string]string{
		"--expect backend;version=v1 --expect backend;version=v2": "",
		"--expect backend;version=v1":                             `dynxds: RPCs do not go as --expect says: route 0 → 10% cluster "backend;version=v2", priority 0, 1 endpoint` + "\n",
		"--expect backend":                                        `dynxds: RPCs do not go as --expect says: route 0 → 90% cluster "backend;version=v1", priority 0, 1 endpoint` + "\n",
	} {
		args := append([]string{"explain", exampleMesh, "--client", "service=frontend,version=v1", "--service", "backend", "/pkg.Service/Method"}, strings.Fields(expected)...)
		stdout, stderr, exit := run(t, args...)
		if (exit == 0) != (want == "") || exit > 1 || stderr != want || !strings.Contains(stdout, "outcome ") {
			t.Errorf("%s: exit status %d with %q, want %q:\n%s", expected, exit, stderr, want, stdout)
		}
	}
	out := runOK(t, "explain", exampleMesh, "--service", "backend", "/pkg.Service/Method", "--client", "service=frontend,version=v1", "--name", "*v2", "--state", "UNHEALTHY")
	if strings.Contains(out, "\ncluster \"backend;version=v1\"") || !strings.Contains(out, "\ncluster \"backend;version=v2\"") || strings.Contains(out, " HEALTHY  ") {
		t.Errorf("with --name and --state:\n%s", out)
	}
}
