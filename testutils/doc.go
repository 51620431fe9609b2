// Package testutils is for tests of programs that use dynxds: an xDS server (FakeServer) and its
// bootstrap file (Bootstrap), a backend that identifies itself (Backend), a network with latency (Link),
// and a deadline for a test (Context). All run on real sockets on loopback.
//
// It imports no client code of the module but xdsclient/dynparam, so that the client's own tests can use
// it, and decides by code of its own which variant of a resource a client gets, so that client and server
// do not share a mistake. It is not a control plane for production: see mesh/controlplane.
//
// Nothing here sleeps. A test waits for the event, under a context, as with Backend.Wait.
package testutils

import (
	"context"
	"testing"
	"time"
)

// Context returns a context that ends with the test, or after 2 minutes, which only a test that hangs takes.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
