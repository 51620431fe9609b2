package xdsclient

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

var errRefused = status.Error(codes.Unavailable, "no more streams")

// fleet is a list of servers, the preferred one first.
type fleet []*script

// newFleet starts servers that are reached as passthrough:///0, 1 and so on. They
// let clients connect at once.
func newFleet(t *testing.T, n int) fleet {
	f := make(fleet, n)
	for i := range f {
		f[i] = newScript(t)
		close(f[i].gate)
	}
	return f
}

func uri(i int) string { return fmt.Sprint("passthrough:///", i) }

func (f fleet) dial(ctx context.Context, addr string) (net.Conn, error) {
	return f[addr[0]-'0'].dial(ctx, addr)
}

// client makes a client of the fleet.
func (f fleet) client(opts ...testutils.BootstrapOption) *XDSClient {
	f[0].t.Helper()
	return f.clientWith(make([][]string, len(f)), opts...)
}

// clientWith makes a client of the fleet, whose servers have the given features.
func (f fleet) clientWith(features [][]string, opts ...testutils.BootstrapOption) *XDSClient {
	t := f[0].t
	t.Helper()
	servers := []testutils.BootstrapOption{testutils.ServerFeatures(features[0]...)}
	for i := 1; i < len(f); i++ {
		servers = append(servers, testutils.FurtherServer(uri(i), features[i]...))
	}
	c, err := New(parseBootstrap(t, uri(0), append(servers, opts...)...), WithDialOptions(grpc.WithContextDialer(f.dial)), WithBackoff(steady))
	xdstest.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// gone checks that the client has left a stream.
func (s *scriptStream) gone() { s.t.Helper(); mustEnd(s.t, s.wire.Context()) }

func mustEnd(t *testing.T, stream context.Context) {
	t.Helper()
	synctest.Wait()
	if stream.Err() == nil {
		t.Fatal("the stream is still open")
	}
}

// overFleet runs a test in a bubble with n servers.
func overFleet(t *testing.T, n int, f func(t *testing.T, types *testTypes, f fleet)) {
	t.Helper()
	bubble(t, func(t *testing.T) { f(t, newTestTypes(), newFleet(t, n)) })
}

// recover has the server accept streams again, and waits for one and its first request.
func (s *script) recover() *scriptStream {
	s.t.Helper()
	s.setRefuse(nil)
	return s.asked()
}
