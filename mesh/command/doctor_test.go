package command

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authzpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/cmdtest"
	"github.com/dynxds/dynxds/mesh/internal/doctor"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/observe/csds"
	"github.com/dynxds/dynxds/testutils"
)

// writeBootstrap writes a bootstrap, and returns its file.
func writeBootstrap(t *testing.T, text []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bootstrap.json")
	xdstest.NoError(t, os.WriteFile(file, text, 0o600))
	return file
}

// ofServer is a bootstrap with a management server.
func ofServer(t *testing.T, uri string) string {
	t.Helper()
	return writeBootstrap(t, fmt.Appendf(nil, `{"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}]}], "node": {"id": "patient"}}`, uri))
}

// serving is a bootstrap whose control plane has these resources.
func serving(t *testing.T, resources ...proto.Message) string {
	t.Helper()
	control := meshtest.StartServer(t)
	control.Set(t, resources...)
	return writeBootstrap(t, control.Bootstrap("patient", testutils.ServerFeatures("delta")))
}

// withHealth is an endpoint whose health service has a status.
func withHealth(t *testing.T, serving grpc_health_v1.HealthCheckResponse_ServingStatus) string {
	return cmdtest.Serve(t, func(s *grpc.Server) {
		h := health.NewServer()
		h.SetServingStatus("", serving)
		grpc_health_v1.RegisterHealthServer(s, h)
	})
}

// nobody is an address at which nothing listens.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// guarded is a bootstrap that allows one service to filters, with a control plane whose ext_authz filter asks another.
func guarded(t *testing.T, target, allowed, asked string) string {
	t.Helper()
	control := meshtest.StartServer(t)
	authz := xdsmsg.With(new(authzpb.ExtAuthz), `grpc_service { google_grpc { target_uri: %q stat_prefix: "s" } }`, asked)
	control.Set(t, xdsmsg.DefaultListener(target, target, xdsmsg.Filter("authz", authz)), way(target)[1], xdsmsg.EDSCluster("c", ""),
		xdsmsg.SimpleEndpoints("c", testutils.StartBackend(t, "b").Addr()))
	return writeBootstrap(t, fmt.Appendf(nil, `{"node": {"id": "patient"}, "xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}]}],
		"allowed_grpc_services": {%q: {"channel_creds": [{"type": "insecure"}]}}}`, control.Addr(), allowed))
}

// way is a Listener and routes of a service that lead to the cluster c.
func way(service string) []proto.Message {
	return []proto.Message{xdsmsg.DefaultListener(service, service), xdsmsg.RouteConfig(service, "*", xdsmsg.PrefixRoute("/", "c"))}
}

// The doctor names the step at which the way of an RPC ends, and what to do.
func TestDoctor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// bootstrap returns the file for a target.
		bootstrap func(t *testing.T, target string) string
		// want are the beginnings of the last lines before the empty one, of which the first has the mark of its check.
		want []string
	}{
		"a wrong key": {func(t *testing.T, _ string) string {
			return writeBootstrap(t, []byte(`{"xds_servers": [{"server_uri": 7}]}`))
		}, []string{"xds_servers[0].server_uri: ", `1 | {"xds_servers": [{"server_uri": 7}]}`, "→ docs/reference/bootstrap.md"}},
		"no such host": {func(t *testing.T, _ string) string { return ofServer(t, "control.invalid:1") }, []string{"✗ DNS", "→ correct server_uri"}},
		"nothing listens": {func(t *testing.T, _ string) string { return ofServer(t, "dns:///"+nobody(t)) },
			[]string{"connection refused", "→ start the control plane, or correct server_uri"}},
		"no gRPC server": {func(t *testing.T, _ string) string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			xdstest.NoError(t, err)
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					conn.Close()
				}
			}()
			return ofServer(t, l.Addr().String())
		}, []string{"✗ HTTP/2", "→ is it a gRPC server? If it wants TLS"}},
		"a silent server": {func(t *testing.T, _ string) string {
			store := controlplane.NewStore()
			store.OnDemand(typeurl.Listener, func(_, _ []*controlplane.Demand) {})
			return writeBootstrap(t, meshtest.StartServer(t, meshtest.OverStore(store)).Bootstrap("patient"))
		}, []string{"✗ Listener", "→ look at the control plane: it is connected, and does not answer"}},
		"no routes": {func(t *testing.T, target string) string { return serving(t, xdsmsg.DefaultListener(target, "r")) },
			[]string{"✗ RouteConfiguration", `→ add it to the control plane, for Listener "`}},
		"no virtual host": {func(t *testing.T, target string) string {
			return serving(t, xdsmsg.DefaultListener(target, "r"), xdsmsg.RouteConfig("r", "elsewhere", xdsmsg.PrefixRoute("/", "c")))
		}, []string{"✗ virtual host", "→ add the authority to the domains"}},
		"no cluster": {func(t *testing.T, target string) string { return serving(t, way(target)...) },
			[]string{"✗ Cluster", "→ add it to the control plane, for the routes"}},
		"a rejected cluster": {func(t *testing.T, target string) string {
			return serving(t, append(way(target), xdsmsg.With(xdsmsg.EDSCluster("c", ""), `lb_policy: MAGLEV maglev_lb_config: {table_size: {value: 4}}`))...)
		}, []string{"tableSize must be a prime number", "→ correct it in the control plane"}},
		"no assignment": {func(t *testing.T, target string) string {
			return serving(t, append(way(target), xdsmsg.EDSCluster("c", ""))...)
		},
			[]string{"✗ ClusterLoadAssignment", `→ add it to the control plane, for cluster "c"`}},
		"no endpoints": {func(t *testing.T, target string) string {
			return serving(t, append(way(target), xdsmsg.EDSCluster("c", ""), xdsmsg.SimpleEndpoints("c"))...)
		}, []string{"there are no endpoints", "→ add endpoints to the service"}},
		"a filter's service is not allowed": {func(t *testing.T, target string) string {
			return guarded(t, target, "dns:///localhost:1", "dns:///localhost:2")
		},
			[]string{"✗ Listener", "target_uri: ", "allowed_grpc_services", "→ correct it in the control plane"}},
		"a filter's service is gone": {func(t *testing.T, target string) string {
			service := "dns:///" + nobody(t)
			return guarded(t, target, service, service)
		}, []string{"✓ cluster", "✗ TCP", `→ start the service of filter "authz", or correct its target_uri in the Listener`, "✓ endpoint"}},
		"an endpoint is gone": {func(t *testing.T, target string) string {
			return serving(t, append(way(target), xdsmsg.EDSCluster("c", ""), xdsmsg.SimpleEndpoints("c", testutils.StartBackend(t, "b").Addr(), nobody(t)))...)
		}, []string{"connected, plaintext, no health service", "connection refused", "→ start the server, or correct its address"}},
		"one of two servers is gone": {func(t *testing.T, target string) string {
			control := meshtest.StartServer(t)
			control.Set(t, append(way(target), xdsmsg.EDSCluster("c", ""), xdsmsg.SimpleEndpoints("c", testutils.StartBackend(t, "b").Addr()))...)
			return writeBootstrap(t, fmt.Appendf(nil, `{"node": {"id": "patient"}, "xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}]},
				{"server_uri": %q, "channel_creds": [{"type": "insecure"}]}]}`, control.Addr(), nobody(t)))
		}, []string{"✗ TCP", "→ start the control plane", "✓ ADS", "✓ cluster", "connected, plaintext, no health service"}},
		"more clusters than are examined": {func(t *testing.T, target string) string {
			routes := xdsmsg.RouteConfig(target, "*")
			for i := range 102 {
				routes.VirtualHosts[0].Routes = append(routes.VirtualHosts[0].Routes, xdsmsg.PathRoute(fmt.Sprintf("/s/%d", i), fmt.Sprint("c", i)))
			}
			return serving(t, xdsmsg.DefaultListener(target, target), routes)
		}, []string{"✗ Cluster", "! clusters", "2 more were not examined"}},
		"nothing": {func(t *testing.T, target string) string {
			return serving(t, append(way(target), xdsmsg.EDSCluster("c", ""), xdsmsg.SimpleEndpoints("c", withHealth(t, grpc_health_v1.HealthCheckResponse_SERVING)))...)
		}, []string{"✓ bootstrap", "✓ TCP", "✓ HTTP/2", "✓ ADS", "✓ Listener", "✓ RouteConfiguration", "✓ virtual host", "✓ cluster", "✓ endpoint", "connected, plaintext, SERVING"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := "patient-" + strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), "/", "-")
			args := []string{"doctor", target, "--bootstrap", test.bootstrap(t, target)}
			if name == "a silent server" {
				args = append(args, "--timeout", "2s") // those that answer take less
			}
			out, stderr, code := run(t, args...)
			rest := out
			for _, want := range test.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("the output does not have %q in this place; status %d %s\n%s", want, code, stderr, out)
				}
				rest = after
			}
			if healthy := name == "nothing"; healthy != (code == 0) || healthy == strings.Contains(out, "✗") {
				t.Errorf("status %d:\n%s", code, out)
			}
		})
	}
}

// A Cluster with TLS: the doctor presents the certificate of the bootstrap, and says how long it lasts.
func TestDoctorOfTLS(t *testing.T) {
	t.Parallel()
	m := startSecureMesh(t, mutualTLS)
	examine := func(code int, args []string, want ...string) {
		t.Helper()
		file := writeBootstrap(t, []byte(runOK(t, append([]string{"bootstrap", "--server", m.planeAddr, "--id", "client"}, args...)...)))
		out, stderr, got := run(t, "doctor", "backend", "--bootstrap", file)
		for _, text := range want {
			if got != code || !strings.Contains(out, text) {
				t.Errorf("status %d, want %d with %q: %s\n%s", got, code, text, stderr, out)
			}
		}
	}
	examine(0, m.all(), "✓ certificates", "frontend.pem: expires in", "mTLS, own certificate of", "connected, TLS, no health service")
	examine(1, m.roots(), "no client certificate from certificate provider instance", "→ add the instance to certificate_providers")
	examine(1, nil, "✗ Cluster", "the bootstrap lacks the certificate provider instance")
	m.plane.drain()
}

// A process says the same of its channels, in JSON, too.
func TestDoctorOfAProcess(t *testing.T) {
	t.Parallel()
	const service = "patient-process"
	good, bad := testutils.StartBackend(t, "good"), nobody(t)
	control := meshtest.StartServer(t)
	control.Set(t, append(way(service), xdsmsg.EDSCluster("c", ""), xdsmsg.SimpleEndpoints("c", good.Addr(), bad))...)
	cc := cmdtest.DialXDS(t, "xds:///"+service, control.Bootstrap(t.Name()))
	process := cmdtest.Serve(t, func(s *grpc.Server) { xdstest.NoError(t, csds.Register(s)) })
	var out string
	cmdtest.Await(t, func() string {
		_, err := testgrpc.NewTestServiceClient(cc).EmptyCall(testutils.Context(t), new(testgrpc.Empty), grpc.WaitForReady(true))
		xdstest.NoError(t, err)
		var code int
		out, _, code = run(t, "doctor", process, service)
		for _, want := range []string{"✓ process", "✓ ADS", "✓ virtual host", "✗ endpoint", bad + ": TRANSIENT_FAILURE: ", "→ start the server", "✓ endpoints", "1 of 2 connected"} {
			if code != 1 || !strings.Contains(out, want) {
				return fmt.Sprintf("status %d without %q:\n%s", code, want, out)
			}
		}
		return ""
	})
	var report doctor.Report
	out, _, _ = run(t, "doctor", process, service, "-o", "json")
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Of != process || !report.Failed() {
		t.Errorf("%v, %+v", err, report)
	}
	out, stderr, code := run(t, "doctor", process, "nobody")
	if code == 0 || !strings.Contains(stderr, `has no Listener "nobody"`) {
		t.Errorf("status %d, %s:\n%s", code, stderr, out)
	}
}
