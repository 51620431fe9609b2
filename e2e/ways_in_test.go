package e2e_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// ways are the ways in to dynxds: each gives the dial options for a mesh.
var ways = []struct {
	name string
	dial func(t *testing.T, m *mesh) []grpc.DialOption
}{
	{"blank import", func(t *testing.T, m *mesh) []grpc.DialOption {
		file := filepath.Join(t.TempDir(), "bootstrap.json")
		xdstest.NoError(t, os.WriteFile(file, m.bootstrap(), 0o600))
		t.Setenv("GRPC_XDS_BOOTSTRAP", file)
		return nil
	}},
	{"blank import, bootstrap in the environment", func(t *testing.T, m *mesh) []grpc.DialOption {
		t.Setenv("GRPC_XDS_BOOTSTRAP", "")
		t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", string(m.bootstrap()))
		return nil
	}},
	{"DialOptions", func(_ *testing.T, m *mesh) []grpc.DialOption {
		return dynxds.DialOptions(dynxds.WithBootstrap(m.bootstrap()))
	}},
	{"WithResolvers", func(_ *testing.T, m *mesh) []grpc.DialOption {
		return []grpc.DialOption{grpc.WithResolvers(m.builder())}
	}},
}

func TestEveryWayInServesEveryKindOfRPC(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b1")
			opts := way.dial(t, m)
			for _, name := range []string{service, service + ":8443"} {
				m.serve(name, "cluster", backend)
				cc := dial(t, "xds:///"+name, opts...)
				mustReachByEachKind(t, cc, backend)
				if got := backend.Last().Authority; got != name {
					t.Errorf("the backend saw authority %q, want %q", got, name)
				}
			}
		})
	}
}

func TestAliasScheme(t *testing.T) {
	m, backend := newMesh(t), testutils.StartBackend(t, "b1")
	m.serve(service, "cluster", backend)
	t.Run("DialOptions", func(t *testing.T) {
		cc := dial(t, "dynxds:///"+service, dynxds.DialOptions(dynxds.WithBootstrap(m.bootstrap()))...)
		mustReach(t, cc, unary, backend)
	})
	t.Run("blank import", func(t *testing.T) {
		t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", string(m.bootstrap()))
		mustReach(t, dial(t, "dynxds:///"+service), unary, backend)
	})
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
		xdsmsg.VirtualHost("one", []string{service}, xdsmsg.PrefixRoute("", "one")),
		xdsmsg.VirtualHost("other", []string{"*.internal"}, xdsmsg.PrefixRoute("", "other"))))
	m.set(append(clusterOf("one", one), clusterOf("other", other)...)...)

	mustReach(t, m.dial("xds:///"+service), unary, one)
	mustReach(t, m.dial("xds:///"+service, grpc.WithAuthority("echo.internal")), unary, other)
	if got := other.Last().Authority; got != "echo.internal" {
		t.Errorf("the backend saw authority %q, want %q", got, "echo.internal")
	}
}

func TestManyChannelsShareOneStream(t *testing.T) {
	t.Parallel()
	m, backend := newMesh(t), testutils.StartBackend(t, "b1")
	builder := m.builder()
	var wg sync.WaitGroup
	for i := range 50 {
		name := fmt.Sprintf("service%d.example.com", i)
		m.set(chain(name, xdsmsg.PrefixRoute("", "cluster"))...)
		cc := dial(t, "xds:///"+name, grpc.WithResolvers(builder))
		wg.Go(func() {
			for _, k := range kinds {
				if _, err := call(testutils.Context(t), cc, k, grpc.WaitForReady(true)); err != nil {
					t.Errorf("%s: %s RPC: %v", name, k, err)
				}
			}
		})
	}
	m.set(clusterOf("cluster", backend)...)
	wg.Wait()
	if n := len(m.Clients()); n != 1 {
		t.Errorf("the control plane has %d ADS streams, want 1 for all channels", n)
	}
}

func TestIdleAndBack(t *testing.T) {
	t.Parallel()
	m, backend := newMesh(t), testutils.StartBackend(t, "b1")
	m.serve(service, "cluster", backend)
	cc := m.dial("xds:///"+service, grpc.WithIdleTimeout(100*time.Millisecond))
	for range 3 {
		mustReachByEachKind(t, cc, backend)
		awaitState(t, cc, connectivity.Idle)
	}
}

func awaitState(t testing.TB, cc *grpc.ClientConn, want connectivity.State) {
	t.Helper()
	ctx := testutils.Context(t)
	for s := cc.GetState(); s != want; s = cc.GetState() {
		if !cc.WaitForStateChange(ctx, s) {
			t.Fatalf("the channel stays %v, want %v", s, want)
		}
	}
}

func TestConnectWithoutAnRPCMakesTheChannelReady(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.serve(service, "cluster", testutils.StartBackend(t, "b1"))
	cc := m.dial("xds:///" + service)
	cc.Connect()
	awaitState(t, cc, connectivity.Ready)
}

// recorder is a stats handler that remembers the methods it saw.
type recorder struct {
	noStats
	mu      sync.Mutex
	methods []string
	ends    int
}

func (r *recorder) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.methods = append(r.methods, info.FullMethodName)
	return ctx
}

func (r *recorder) HandleRPC(_ context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.End); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ends++
	}
}

// Whatever the way in, the application's interceptors run outside, so that routing sees what they
// add.
func TestUserInterceptorsAndStatsHandlers(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b1")
			m.serve(service, "cluster", backend)
			var stats recorder
			chained := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				return invoker(metadata.AppendToOutgoingContext(ctx, "added", "chained"), method, req, reply, cc, opts...)
			}
			single := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				return invoker(metadata.AppendToOutgoingContext(ctx, "added", "single"), method, req, reply, cc, opts...)
			}
			opts := append(way.dial(t, m),
				grpc.WithChainUnaryInterceptor(chained),
				grpc.WithUnaryInterceptor(single),
				grpc.WithStatsHandler(&stats),
			)
			mustReach(t, dial(t, "xds:///"+service, opts...), unary, backend)
			if got := strings.Join(backend.Last().Metadata.Get("added"), ","); got != "single,chained" {
				t.Errorf("the backend saw metadata added %q, want %q", got, "single,chained")
			}
			stats.mu.Lock()
			defer stats.mu.Unlock()
			if len(stats.methods) != 1 || stats.methods[0] != unaryMethod || stats.ends != 1 {
				t.Errorf("the stats handler saw %v and %d ends, want %s once", stats.methods, stats.ends, unaryMethod)
			}
		})
	}
}

// childVariable tells a process started by a test which target to call.
const childVariable = "DYNXDS_TEST_CHILD"

// runChild runs the check of a child process. ok is false in other processes.
func runChild() (code int, ok bool) {
	target := os.Getenv(childVariable)
	if target == "" {
		return 0, false
	}
	cc, err := grpc.NewClient(target, dialInsecure)
	if err == nil {
		for _, k := range kinds {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			if _, err = call(ctx, cc, k); err != nil {
				err = fmt.Errorf("%s RPC: %w", k, err)
			}
			cancel()
		}
		cc.Close()
	}
	if err != nil {
		fmt.Println(err)
		return 1, true
	}
	return 0, true
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
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childVariable+"=xds:///"+service,
		"HTTPS_PROXY=http://"+proxy.Addr().String(),
		"NO_PROXY=", "no_proxy=",
		"GRPC_XDS_BOOTSTRAP=", "GRPC_XDS_BOOTSTRAP_CONFIG="+string(m.bootstrap()))
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if backend.Count() != len(kinds) {
		t.Errorf("the backend saw %d RPCs, want %d", backend.Count(), len(kinds))
	}
}

// put makes data the content of a file at once.
func put(t *testing.T, file string, data []byte) {
	t.Helper()
	next := file + ".next"
	xdstest.NoError(t, os.WriteFile(next, data, 0o600))
	xdstest.NoError(t, os.Rename(next, file))
}

// A channel that was opened before there was a bootstrap that can be used is served as
// soon as there is one, new or corrected.
func TestBootstrapAppearsAfterDialling(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before string // the content of the file; empty: there is none
		texts  []string
		opts   func(t *testing.T) []grpc.DialOption
	}{
		{"no file", "", []string{"bootstrap.json", "GRPC_XDS_BOOTSTRAP"}, nil},
		{"faulty file", `{"xds_servers": []}`, []string{"bootstrap.json", "xds_servers"}, nil},
		{"DialOptions", "", []string{"bootstrap.json"}, func(*testing.T) []grpc.DialOption { return dynxds.DialOptions() }},
		{"credentials/xds", "", []string{"bootstrap.json"}, func(t *testing.T) []grpc.DialOption { return []grpc.DialOption{xdsCreds(t)} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b1")
			m.serve(service, "c", backend)
			file := filepath.Join(t.TempDir(), "bootstrap.json")
			if tc.before != "" {
				put(t, file, []byte(tc.before))
			}
			t.Setenv("GRPC_XDS_BOOTSTRAP", file)
			var opts []grpc.DialOption
			if tc.opts != nil {
				opts = tc.opts(t)
			}
			cc := dial(t, "xds:///"+service, opts...)
			mustFail(t, cc, tc.texts...)
			waiting := make(chan error, 1)
			go func() {
				_, err := call(testutils.Context(t), cc, unary, grpc.WaitForReady(true))
				waiting <- err
			}()
			put(t, file, m.bootstrap())
			if err := <-waiting; err != nil {
				t.Error(err)
			}
			mustReachByEachKind(t, cc, backend)
		})
	}
}

// A channel that DNS resolves because there was no bootstrap moves to xDS, and no RPC
// fails of that, whatever the bootstrap says of DNS.
func TestBootstrapAppearsAndTheChannelLeavesDNS(t *testing.T) {
	overLinksInTurn(t, func(t *testing.T) {
		for _, fallback := range []string{"never", "not_found"} {
			t.Run(fallback, func(t *testing.T) {
				t.Setenv("GRPC_XDS_BOOTSTRAP", "")
				t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "")
				m := newMesh(t)
				byDNS, mesh := testutils.StartBackend(t, "dns"), testutils.StartBackend(t, "mesh")
				_, target := inZone(t, byDNS)
				m.set(append(chain(target, toCluster("c")), clusterOf("c", mesh)...)...)
				cc := dial(t, "xds:///"+target)
				load := loadOn(t, cc, byDNS)
				t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", `{"xds_servers": "faulty"}`)
				load.await(t, byDNS)
				t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", string(m.bootstrap(testutils.TopLevel("dns_fallback", fallback))))
				load.await(t, mesh)
				load.stop(t)
				if got := statusOf(t, "xds:///"+target); got.Mode != dynxds.ModeXDS {
					t.Errorf("mode %v, %q", got.Mode, got.Reason)
				}
			})
		}
	})
}

// If the variable is unset, DNS takes over from a bootstrap with
// faults, as for new channels.
func TestInvalidBootstrapIsRemoved(t *testing.T) {
	t.Setenv("GRPC_XDS_BOOTSTRAP", "")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", `{"xds_servers": "faulty"}`)
	backend := testutils.StartBackend(t, "dns")
	_, target := inZone(t, backend)
	cc := dial(t, "xds:///"+target)
	mustFail(t, cc, "xds_servers")
	t.Setenv("GRPC_XDS_BOOTSTRAP_CONFIG", "")
	mustReach(t, cc, unary, backend)
}

// A channel that is closed while it has no bootstrap leaves nothing behind.
func TestClosedWithoutABootstrap(t *testing.T) {
	t.Setenv("GRPC_XDS_BOOTSTRAP", filepath.Join(t.TempDir(), "bootstrap.json"))
	for range 20 {
		cc, err := grpc.NewClient("xds:///"+service, dialInsecure)
		xdstest.NoError(t, err)
		cc.Connect()
		cc.Close()
	}
}
