package xdstest

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/dynxds/dynxds/testutils"
)

// Forward passes TCP connections to addr, "IP:port", on to a backend until the
// test ends. With it, backends have one port on several addresses, as servers
// behind one DNS name do. The test is skipped if the machine does not have the
// address.
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
			running.Go(func() { join(conn, addr) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		running.Wait()
	})
}

// join copies between a connection and a new one to addr until either ends.
func join(conn net.Conn, addr string) {
	defer conn.Close()
	other, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(conn, other)
		conn.Close()
	})
	_, _ = io.Copy(other, conn)
	other.Close()
	back.Wait()
}
