package xdstest

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/dynxds/dynxds/testutils"
)

// Forward forwards TCP connections to addr, "IP:port", to a backend until the test ends. So backends can
// have one port on several addresses, as servers behind one DNS name do. The test is skipped if the
// machine does not have the address.
func Forward(t testing.TB, addr string, to *testutils.Backend) {
	t.Helper()
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("cannot listen on %s: %v", addr, err)
	}
	ForwardFrom(t, listener, to.Addr())
}

// ForwardFrom passes the connections of a listener on to addr until the test ends.
func ForwardFrom(t testing.TB, listener net.Listener, addr string) {
	t.Helper()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				if other, err := net.Dial("tcp", addr); err == nil {
					join(conn, other)
				}
				conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		running.Wait()
	})
}

// join copies between two connections until either ends, and closes both.
func join(one, other net.Conn) {
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(one, other)
		one.Close()
	})
	_, _ = io.Copy(other, one)
	other.Close()
	back.Wait()
}
