package xdstest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds/testutils"
)

// Hold makes every new RPC of a backend wait until release is called or its context ends. release is
// idempotent; RPCs that begin after it are answered at once.
func Hold(b *testutils.Backend) (release func()) {
	held := make(chan struct{})
	b.SetBehaviour(func(ctx context.Context, _ testutils.RPC) error {
		select {
		case <-held:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return sync.OnceFunc(func() { close(held) })
}

// Serve serves on loopback, over a link if that is not nil, until the test ends, and returns the address.
func Serve(t testing.TB, link *testutils.Link, s *grpc.Server) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	NoError(t, err)
	if link != nil {
		listener = link.Listener(listener)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(listener) })
	t.Cleanup(func() {
		s.Stop()
		serving.Wait()
	})
	return listener.Addr().String()
}

var targets atomic.Int64

// Target returns a target for an address that no other call returns. Connections are shared by target, and a new server may get the port of a
// server of an earlier test: with the same target its clients would get the old connection, which is about to end or waits to be made again.
func Target(address string) string {
	return fmt.Sprintf("passthrough://%d/%s", targets.Add(1), address)
}

// SlowLink returns a link with a delay for each direction.
func SlowLink(toServer, toClient time.Duration) *testutils.Link {
	link := new(testutils.Link)
	link.SetDelay(toServer, toClient)
	return link
}
