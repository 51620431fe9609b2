package interop_test

import (
	"os"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpcresolver "google.golang.org/grpc/resolver"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/interop/gocp"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/mesh/meshtest/load"
	"github.com/dynxds/dynxds/resolver"
	"github.com/dynxds/dynxds/testutils"
)

func TestMain(m *testing.M) {
	switch os.Getenv(childVariable) {
	case bothSchemesChild, dialOptionsChild, someDialOptionsChild, registerChild:
		os.Exit(child())
	case explainedChild:
		os.Exit(runExplained())
	case benchChild:
		os.Exit(runBenchProgram())
	}
	if os.Getenv(extProcVariable) != "" {
		os.Exit(m.Run()) // channels to processors are closed when the garbage collector has noticed that nothing uses them
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		removeShared()
		os.Exit(status)
	}))
}

// service is the endpoint of the target, and the name of its Listener.
const service = "echo.example.com"

// world is a control plane, two backends, and two channels of dynxds: one with
// RPCs running on it, and one with a stream that lives as long as the world.
type world struct {
	control     *gocp.Server
	blue, green *testutils.Backend
	load        *load.Load
}

// overLinks runs a test with the control plane on loopback, and behind a link with latency.
func overLinks(t *testing.T, name string, f func(t *testing.T, link *testutils.Link)) {
	xdstest.Parallel(t, name, func(t *testing.T) {
		f(t, nil)
	})
	xdstest.Parallel(t, name+", with latency", func(t *testing.T) {
		f(t, xdstest.SlowLink(10*time.Millisecond, 10*time.Millisecond))
	})
}

// newWorld starts all of it with the initial resources, and returns when the
// RPCs are answered by blue. link may be nil.
func newWorld(t *testing.T, mode gocp.Mode, link *testutils.Link) *world {
	t.Helper()
	w := &world{
		control: gocp.StartOver(t, mode, link),
		blue:    testutils.StartBackend(t, "blue"),
		green:   testutils.StartBackend(t, "green"),
	}
	w.control.Set(t, w.initial()...)
	cc := dial(t, builderOf(t, ours, w.control.Bootstrap()), "xds:///"+service)
	w.load = load.Start(t, cc)
	w.load.HoldStream(t, cc)
	w.load.WaitForBackends(t, "blue")
	return w
}

// initial is Listener, route, cluster and endpoints of blue.
func (w *world) initial() []proto.Message {
	return []proto.Message{listener("routes"), routes("routes", "blue"), cluster("blue", "blue"), w.endpoints("blue", w.blue)}
}

// The resources of this package's tests, each with what the tests change.

func listener(routeConfig string) *listenerpb.Listener {
	return xdsmsg.DefaultListener(service, routeConfig)
}

func routes(name, cluster string) *routepb.RouteConfiguration {
	return xdsmsg.RouteConfig(name, service, xdsmsg.PrefixRoute("/", cluster))
}

func cluster(name, endpoints string) *clusterpb.Cluster {
	return xdsmsg.EDSCluster(name, "endpoints-of-"+endpoints)
}

func (w *world) endpoints(name string, backends ...*testutils.Backend) *endpointpb.ClusterLoadAssignment {
	var addrs []string
	for _, b := range backends {
		addrs = append(addrs, b.Addr())
	}
	return xdsmsg.SimpleEndpoints("endpoints-of-"+name, addrs...)
}

// The peers are whose xds a client has, and over which variant of the protocol.
const (
	grpcGo      = "grpc-go-xds"
	ours        = "dynxds"
	oursOnDelta = "dynxds-delta"
)

// builderOf is the xds of a peer. Its scheme is "xds".
func builderOf(t testing.TB, peer string, bootstrap []byte) grpcresolver.Builder {
	t.Helper()
	newBuilder := resolver.NewBuilder
	if peer == grpcGo {
		newBuilder = xds.NewXDSResolverWithConfigForTesting
	}
	b, err := newBuilder(bootstrap)
	xdstest.NoError(t, err)
	return b
}

// bootstrapOf is the bootstrap of a peer for our control plane.
func bootstrapOf(peer string, server *meshtest.Server) []byte {
	if peer == oursOnDelta {
		return server.Bootstrap("node", testutils.ServerFeatures("delta"))
	}
	return server.Bootstrap("node")
}

// dial returns a channel that is closed when the test ends, in plaintext unless an option
// says otherwise. b resolves its target, or the resolver registered with gRPC if b is nil.
func dial(t testing.TB, b grpcresolver.Builder, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, opts...)
	if b != nil {
		opts = append(opts, grpc.WithResolvers(b))
	}
	cc, err := grpc.NewClient(target, opts...)
	xdstest.NoError(t, err)
	t.Cleanup(func() { cc.Close() })
	return cc
}
