package interop_test

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/xds"

	"github.com/dynxds/dynxds/internal/loopback"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/relay"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// startRelay starts a relay with a bootstrap, and returns it and its address.
func startRelay(tb testing.TB, config []byte, downstream controlplane.Options) (*relay.Relay, string) {
	tb.Helper()
	cfg, err := bootstrap.Parse("the relay's", config)
	xdstest.NoError(tb, err)
	r, err := relay.New(relay.Options{Bootstrap: cfg, Server: downstream})
	xdstest.NoError(tb, err)
	return r, serveUntilEnd(tb, r.Register, r.Close)
}

// serveUntilEnd serves until the end of the test, and returns the address.
func serveUntilEnd(tb testing.TB, register func(grpc.ServiceRegistrar), stop func()) string {
	tb.Helper()
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	register(server)
	addr := xdstest.Serve(tb, nil, server)
	tb.Cleanup(stop) // before the server's
	return addr
}

// A relay is started again while its control plane is unreachable, and has nothing. gRPC-Go, which knows no errors
// in place of resources, keeps its Listener and Clusters, and no RPC fails.
func TestGRPCGoOutlivesARelayWithoutItsControlPlane(t *testing.T) {
	t.Parallel()
	s := startOurServer(t, ourOption{})
	cfg, err := bootstrap.Parse("the relay's", s.Bootstrap("relay", testutils.ServerFeatures("delta")))
	xdstest.NoError(t, err)
	address, err := loopback.Reserve()
	xdstest.NoError(t, err)
	t.Cleanup(address.Release)
	start := func() (r *relay.Relay, stop func()) {
		t.Helper()
		r, err := relay.New(relay.Options{Bootstrap: cfg, AwayDelay: -1})
		xdstest.NoError(t, err)
		server := grpc.NewServer(grpc.WaitForHandlers(true))
		r.Register(server)
		listener, err := address.Listen()
		xdstest.NoError(t, err)
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(listener) })
		stop = sync.OnceFunc(func() {
			r.Close()
			server.Stop()
			serving.Wait()
		})
		t.Cleanup(stop)
		return r, stop
	}
	_, stop := start()
	s.addr = address.String()
	b, err := xds.NewXDSResolverWithConfigForTesting(s.bootstrapForOthers())
	xdstest.NoError(t, err)
	client := testpb.NewTestServiceClient(dial(t, b, "xds:///"+service))
	ctx := testutils.Context(t)
	mustAnswer := func(when string) {
		t.Helper()
		for range 10 {
			if id, err := answeredOnce(ctx, client); id != "blue" {
				t.Fatalf("%s, %q answers, and the error is %v", when, id, err)
			}
		}
	}
	mustAnswer("before")
	s.Stop()
	stop()
	again, _ := start()
	// Routes are answered, by an error, after Listeners would be.
	for !hasACKed(again, typeurl.RouteConfiguration) {
		mustAnswer("without the control plane")
		select {
		case <-ctx.Done():
			t.Fatalf("the client did not come back: %v", again.Clients())
		case <-time.After(time.Millisecond):
		}
	}
	mustAnswer("after the answer of the new relay")
	s.Set(t, xdsmsg.InlineListener(service, routes("", "green")), cluster("green", "green"), s.endpoints("green", s.green))
	xdstest.NoError(t, s.Restart())
	for id := ""; id != "green"; id, _ = answeredOnce(ctx, client) {
		if ctx.Err() != nil {
			t.Fatalf("%q answers after the control plane is back, want green", id)
		}
	}
}

// hasACKed reports whether a client of a relay has accepted a response of a type.
func hasACKed(r *relay.Relay, typeURL string) bool {
	for _, c := range r.Clients() {
		for _, typ := range c.Types {
			if typ.TypeURL == typeURL && typ.Reply == controlplane.ReplyACK {
				return true
			}
		}
	}
	return false
}
