package interop_test

import (
	"testing"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/relay"
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
