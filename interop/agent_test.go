package interop_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/mesh/relay"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// agent is a control plane that serves one stream and closes the former, as Istio's agent does in a pod.
type agent struct {
	*ourServer

	mu sync.Mutex
	// last ends the present stream; opened counts the streams, and evicted those that others ended.
	last            context.CancelFunc
	opened, evicted int
}

func startAgent(t *testing.T) *agent {
	t.Helper()
	a := &agent{ourServer: &ourServer{world: world{blue: testutils.StartBackend(t, "blue"), green: testutils.StartBackend(t, "green")}}}
	a.Server = meshtest.Start(t, meshtest.Options{GRPC: []grpc.ServerOption{grpc.StreamInterceptor(a.serve)}})
	a.addr = a.Server.Addr()
	return a
}

// serve is a grpc.StreamServerInterceptor.
func (a *agent) serve(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	a.mu.Lock()
	a.opened++
	if a.last != nil {
		a.last()
	}
	a.last = cancel
	a.mu.Unlock()
	ended := make(chan error, 1)
	go func() { ended <- handler(srv, stream) }() // ends with the stream, soon after this
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if stream.Context().Err() == nil {
		a.mu.Lock()
		a.evicted++
		a.mu.Unlock()
	}
	return status.Error(codes.Unavailable, "another stream has begun")
}

// streams returns how many streams there were, and how many of them others ended.
func (a *agent) streams() (opened, evicted int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.opened, a.evicted
}

// bootstrap is that of the pod.
func (a *agent) bootstrap() []byte {
	return a.Bootstrap("pod", testutils.NodeField("locality", map[string]any{}),
		testutils.TopLevel("server_listener_resource_name_template", serverTemplate))
}

// serverTemplate is the template of the names of servers' Listeners.
const serverTemplate = "grpc/server?xds.resource.listening_address=%s"

// serverListener is the Listener of a server in plaintext.
func serverListener(addr net.Addr) *listenerpb.Listener {
	l := xdsmsg.With(new(listenerpb.Listener), `
		name: %q
		filter_chains { name: "inbound" filters { name: "hcm" typed_config {
			[type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager] {
				route_config { name: "inbound" virtual_hosts {
					name: "*" domains: "*" routes { match { prefix: "/" } non_forwarding_action {} }
				} }
				http_filters { name: "router" typed_config { [type.googleapis.com/envoy.extensions.filters.http.router.v3.Router] {} } }
			}
		} } }`, strings.Replace(serverTemplate, "%s", addr.String(), 1))
	l.Address = xdsmsg.Address(addr.String())
	return l
}

// startProcess starts what a process has: an xDS server of gRPC-Go, which is the service's endpoint, and channels to
// the service, of dynxds and of gRPC-Go.
func (a *agent) startProcess(t *testing.T, config []byte) (modes <-chan xds.ServingModeChangeArgs, channels map[string]testpb.TestServiceClient) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	xdstest.NoError(t, err)
	a.Set(t, a.initial()...)
	a.Set(t, serverListener(l.Addr()))
	modes = startXDSServer(t, config, l, whoCalls{})
	channels = map[string]testpb.TestServiceClient{"itself": testpb.NewTestServiceClient(dial(t, nil, "passthrough:///"+l.Addr().String()))}
	for _, peer := range []string{ours, grpcGo} {
		channels[peer] = testpb.NewTestServiceClient(dial(t, builderOf(t, peer, config), "xds:///"+service))
	}
	return modes, channels
}

// An agent that serves one stream serves a process with an xDS server, and with channels of both packages, if the
// process has a relay between them and the agent: all updates arrive, and no stream is evicted.
func TestInProcessRelayBehindAnAgentOfOneStream(t *testing.T) {
	t.Parallel()
	a := startAgent(t)
	cfg, err := bootstrap.Parse("the pod's", a.bootstrap())
	xdstest.NoError(t, err)
	config, stop, err := relay.InProcess(relay.Options{Bootstrap: cfg})
	xdstest.NoError(t, err)
	t.Cleanup(stop)
	modes, channels := a.startProcess(t, config)
	ctx := testutils.Context(t)
	select {
	case args := <-modes:
		if args.Mode != connectivity.ServingModeServing {
			t.Fatalf("the server is in mode %v: %v", args.Mode, args.Err)
		}
	case <-ctx.Done():
		t.Fatal("the server does not serve")
	}
	if answer, err := channels["itself"].UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.WaitForReady(true)); err != nil || answer.GetHostname() != "unknown" {
		t.Errorf("the server answers %v, %v", answer, err)
	}
	for i := range 10 {
		want := []string{"blue", "green"}[i%2]
		a.Set(t, cluster(want, want), a.endpoints("blue", a.blue), a.endpoints("green", a.green), routes("routes", want))
		for _, name := range []string{ours, grpcGo} {
			for got := ""; got != want; {
				answer, err := channels[name].UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.WaitForReady(true))
				if err != nil && (name == ours || ctx.Err() != nil) { // gRPC-Go fails RPCs when a route moves
					t.Fatalf("%s, update %d: %v", name, i, err)
				}
				got = answer.GetHostname()
			}
		}
	}
	if opened, evicted := a.streams(); opened != 1 || evicted != 0 {
		t.Errorf("%d streams were opened and %d of them evicted, want one for the process", opened, evicted)
	}
	for _, r := range a.Requests() {
		if n := r.Node; n != nil && (n.GetId() != "pod" || n.GetUserAgentName() == grpcUserAgent) {
			t.Errorf("the agent was asked by the node %v, want the pod's", n)
		}
	}
}
