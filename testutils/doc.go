// Package testutils holds the parts that tests and the demo stand on: a control
// plane with fault switches (FakeServer), a real gRPC backend (Backend), a network with
// latency (Link), and a deadline for a test (Context). A DNS server is in dnsserver.
// Everything runs on real sockets on loopback.
//
// It is for tests and for cmd only. It imports no client code of the module but
// xdsclient/dynparam, so that the client's own tests can use it.
//
// Nothing here sleeps. Where a test has to wait it waits for the event, under a
// context: FakeServer.Wait for a request of the client, Backend.Wait for an RPC.
package testutils

import (
	"context"
	"testing"
	"time"
)

// TestTimeout is how long Context lasts.
const TestTimeout = 30 * time.Second

// Context returns a context that ends with the test, or after TestTimeout. The
// deadline is there to end a test that hangs, not to be measured against.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), TestTimeout)
	t.Cleanup(cancel)
	return ctx
}
