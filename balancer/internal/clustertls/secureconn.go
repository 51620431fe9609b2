package clustertls

import (
	"fmt"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/dynxds/dynxds/internal/faults"
)

// secureConn is a connection after the handshake. In TLS 1.3 the client has finished before the
// server has looked at the client's certificate, so that a refusal is an error of the first
// reads and writes, and often one that does not say so. Those errors get what is known.
type secureConn struct {
	net.Conn
	bundle *Bundle
	// accepted is set when the server has sent something.
	accepted atomic.Bool
}

// Read implements net.Conn.
func (c *secureConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.accepted.Load() {
		c.accepted.Store(true)
	}
	return n, c.explain(err)
}

// Write implements net.Conn.
func (c *secureConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.explain(err)
}

func (c *secureConn) explain(err error) error {
	if err == nil || c.accepted.Load() {
		return err
	}
	has := "has no certificate"
	if c.bundle.identity != nil {
		has = "has the certificate of " + c.bundle.identity.String()
	}
	return fmt.Errorf("TLS of cluster %s: the connection ended right after the handshake; the server may have refused the client, which %s: %w",
		faults.Quote(c.bundle.key.cluster), has, err)
}

// SyscallConn implements syscall.Conn, for channelz.
func (c *secureConn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, fmt.Errorf("a %T is no socket", c.Conn)
}
