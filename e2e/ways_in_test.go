package e2e_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	grpcresolver "google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// ways are the ways in to dynxds: each gives the dial options for a mesh.
var ways = []struct {
	name    string
	schemes []string
	dial    func(t *testing.T, m *mesh) []grpc.DialOption
}{
	{"blank import", []string{"xds", "dynxds"}, func(t *testing.T, m *mesh) []grpc.DialOption {
		file := filepath.Join(t.TempDir(), "bootstrap.json")
		xdstest.NoError(t, os.WriteFile(file, m.bootstrap(), 0o600))
		t.Setenv("GRPC_XDS_BOOTSTRAP", file)
		return nil
	}},
	{"blank import, bootstrap in the environment", []string{"xds"}, func(t *testing.T, m *mesh) []grpc.DialOption {
		t.Setenv("GRPC_XDS_BOOTSTRAP", "")
		t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", string(m.bootstrap()))
		return nil
	}},
	{"DialOptions", []string{"xds", "dynxds"}, func(_ *testing.T, m *mesh) []grpc.DialOption {
		return dynxds.DialOptions(dynxds.WithBootstrap(m.bootstrap()))
	}},
	{"WithResolvers", []string{"xds"}, func(t *testing.T, m *mesh) []grpc.DialOption {
		return []grpc.DialOption{withBootstrap(t, m.bootstrap())}
	}},
}

// Whatever the way in and the scheme, RPCs of every kind are served, and the application's interceptors run outside, so that routing sees
// what they add.
func TestEveryWayInServesEveryKindOfRPC(t *testing.T) {
	everyWay(t)
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b1")
			adding := func(value string) grpc.UnaryClientInterceptor {
				return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
					return invoker(metadata.AppendToOutgoingContext(ctx, "added", value), method, req, reply, cc, opts...)
				}
			}
			opts := append(way.dial(t, m), grpc.WithChainUnaryInterceptor(adding("chained")), grpc.WithUnaryInterceptor(adding("single")))
			for name, schemes := range map[string][]string{service: way.schemes, service + ":8443": {"xds"}} {
				m.serve(name, "cluster", backend)
				for _, scheme := range schemes {
					cc := dial(t, scheme+":///"+name, opts...)
					mustReachByEachKind(t, cc, backend)
					mustReach(t, cc, unary, backend)
					xdstest.Equal(t, "authority at the backend", name, backend.Last().Authority)
					xdstest.Equal(t, "metadata at the backend", []string{"single", "chained"}, backend.Last().Metadata.Get("added"))
				}
			}
		})
	}
}

func TestOtherTargetsAreNotTouched(t *testing.T) {
	t.Parallel()
	backend := testutils.StartBackend(t, "b1")
	for _, target := range []string{backend.Addr(), "passthrough:///" + backend.Addr(), "dns:///" + backend.Addr()} {
		for name, opts := range map[string][]grpc.DialOption{
			"blank import": nil,
			"DialOptions":  dynxds.DialOptions(dynxds.WithBootstrap([]byte("this is not JSON"))),
		} {
			t.Run(target+", "+name, func(t *testing.T) {
				cc := dial(t, target, opts...)
				mustReachByEachKind(t, cc, backend)
			})
		}
	}
}

func TestWithAuthorityChoosesTheVirtualHost(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	one, other := testutils.StartBackend(t, "one"), testutils.StartBackend(t, "other")
	m.set(xdsmsg.DefaultListener(service, "routes"), xdsmsg.RouteConfigOf("routes",
		xdsmsg.VirtualHost("one", []string{service}, toCluster("one")),
		xdsmsg.VirtualHost("other", []string{"*.internal"}, toCluster("other"))),
		clusterOf("one", one), clusterOf("other", other))

	mustReach(t, m.dial("xds:///"+service), unary, one)
	mustReach(t, m.dial("xds:///"+service, grpc.WithAuthority("echo.internal")), unary, other)
	xdstest.Equal(t, "the authority that the backend saw", "echo.internal", other.Last().Authority)
}

// childVariable names the target that a process started by a test calls.
const childVariable = "DYNXDS_TEST_CHILD"

// runChild runs the check of a child process. ok is false in other processes.
func runChild() (code int, ok bool) {
	target := os.Getenv(childVariable)
	if target == "" {
		return 0, false
	}
	grpcresolver.SetDefaultScheme("xds") // not for the management server
	cc, err := grpc.NewClient(target, dialInsecure)
	if err != nil {
		fmt.Println(err)
		return 1, true
	}
	defer cc.Close()
	for _, k := range kinds {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		if _, err := call(ctx, cc, k); err != nil {
			fmt.Printf("%s RPC: %v\n", k, err)
			code = 1
		}
		cancel()
	}
	return code, true
}

// The environment names a proxy for the target (Go reads the variable once, hence a process of its
// own). The endpoints of the mesh are reached directly, as with gRPC-Go's own xds.
func TestUnderHTTPSProxy(t *testing.T) {
	t.Parallel()
	m, backend := newMesh(t), testutils.StartBackend(t, "b1")
	m.serve(service, "cluster", backend)
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	defer proxy.Close()
	callInChild(t, backend, service, "http://"+proxy.Addr().String(), string(m.bootstrap()))
}

// callInChild runs a process that calls the target in an environment with a proxy and a bootstrap.
func callInChild(t *testing.T, backend *testutils.Backend, target, proxy, bootstrap string) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childVariable+"="+target, "HTTPS_PROXY="+proxy, "NO_PROXY=", "no_proxy=",
		"GRPC_XDS_BOOTSTRAP=", "GRPC_XDS_BOOTSTRAP_CONFIG="+bootstrap)
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	xdstest.Equal(t, "RPCs that the backend saw", len(kinds), backend.Count())
}

// put makes data the content of a file at once.
func put(t *testing.T, file string, data []byte) {
	t.Helper()
	next := file + ".next"
	xdstest.NoError(t, os.WriteFile(next, data, 0o600))
	xdstest.NoError(t, os.Rename(next, file))
}

// A channel that was opened without a usable bootstrap is served as soon as there is one, new or corrected.
func TestBootstrapAppearsAfterDialling(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before string // the content of the file; empty: there is none
		texts  []string
	}{
		{"no file", "", []string{"bootstrap.json", "GRPC_XDS_BOOTSTRAP"}},
		{"faulty file", `{"xds_servers": []}`, []string{"bootstrap.json", "xds_servers"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b1")
			m.serve(service, "c", backend)
			file := filepath.Join(t.TempDir(), "bootstrap.json")
			if tc.before != "" {
				put(t, file, []byte(tc.before))
			}
			t.Setenv("GRPC_XDS_BOOTSTRAP", file)
			cc := dial(t, "xds:///"+service)
			mustFail(t, cc, tc.texts...)
			waiting := startCall(testutils.Context(t), cc, unary)
			put(t, file, m.bootstrap())
			xdstest.NoError(t, <-waiting)
			mustReachByEachKind(t, cc, backend)
		})
	}
}
