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

// untouched checks that no stream was opened at a server.
func (s *script) untouched() {
	s.t.Helper()
	synctest.Wait()
	s.opened(0)
}

// opened checks how many streams were opened at a server.
func (s *script) opened(want int) {
	s.t.Helper()
	xdstest.Equal(s.t, "streams opened", want, len(s.attempts()))
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

// fallenBack returns a client whose primary server refuses streams, and which
// has the clusters "a" and "b" of the secondary, as version "low".
func fallenBack(t *testing.T, f fleet, types *testTypes) (c *XDSClient, a, b *ear, low *scriptStream) {
	t.Helper()
	f[0].setRefuse(errRefused)
	f[0].hold()
	c = f.client()
	a, _ = listen(t, c, types.clusters, "a")
	b, _ = listen(t, c, types.clusters, "b")
	f[0].open()
	low = f[1].stream()
	check(t, low.request(), want{typ: types.clusters, names: []string{"a", "b"}, node: true})
	low.send(types.clusters, "1", "n1", cluster("a", "low"), cluster("b", "low"))
	allHear("low", a, b)
	check(t, low.request(), want{typ: types.clusters, names: []string{"a", "b"}, version: "1", nonce: "n1"})
	return c, a, b, low
}

// overFleet runs a test in a bubble with n servers.
func overFleet(t *testing.T, n int, f func(t *testing.T, types *testTypes, f fleet)) {
	t.Helper()
	bubble(t, func(t *testing.T) { f(t, newTestTypes(), newFleet(t, n)) })
}

// lose ends the stream of a server, and refuses others until recover.
func (s *script) lose(stream interface{ breakOff() }) {
	s.setRefuse(errRefused)
	stream.breakOff()
	synctest.Wait()
}

// recover has the server accept streams again, and waits for one and its first request.
func (s *script) recover() *scriptStream {
	s.t.Helper()
	s.setRefuse(nil)
	return s.asked()
}
