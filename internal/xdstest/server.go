// Package xdstest extends package testutils for the tests of this module: an xDS server that
// records its requests and injects errors (Server; Tap does it for other servers), backends on several
// addresses (Forward), a log that tests read (Log), and the checks that every test makes (NoError, Equal).
//
// Nothing here sleeps. A test waits for the event, under a context: Tap.Wait for a
// request of the client, Log.Wait for a line.
package xdstest

import (
	"net"
	"testing"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/internal/loopback"
	"github.com/dynxds/dynxds/testutils"
)

// Server is a FakeServer with a Tap. It is safe for concurrent use.
type Server struct {
	*testutils.FakeServer
	*Tap
}

// StartServer starts a Server that is closed when the test ends.
func StartServer(t testing.TB) *Server {
	t.Helper()
	tap := NewTap()
	return &Server{testutils.StartFakeServer(t, grpc.ChainStreamInterceptor(tap.Intercept)), tap}
}

// StartLoopback starts a server that is closed when the test ends. It is behind a link, unless that is nil.
func StartLoopback(t testing.TB, run func() loopback.Run, link *testutils.Link) *loopback.Server {
	t.Helper()
	var wrap func(net.Listener) net.Listener
	if link != nil {
		wrap = link.Listener
		t.Cleanup(link.Wait)
	}
	server, err := loopback.StartServer(run, wrap)
	NoError(t, err)
	t.Cleanup(server.Close)
	return server
}
