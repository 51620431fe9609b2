package peercert

import (
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
)

// Conn is a connection of a client after the handshake. In TLS 1.3 the client has finished before the server has looked at the
// client's certificate, so that a refusal is an error of the first reads and writes, and often one that does not say so.
type Conn struct {
	net.Conn
	// Explain adds to an error of a read or a write why it occurs. accepted says that the server has sent something before.
	Explain  func(err error, accepted bool) error
	accepted atomic.Bool
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.accepted.Load() {
		c.accepted.Store(true)
	}
	return n, c.explain(err)
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.explain(err)
}

func (c *Conn) explain(err error) error {
	if err == nil {
		return nil
	}
	return c.Explain(err, c.accepted.Load())
}

// SyscallConn implements syscall.Conn, for channelz.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, fmt.Errorf("a %T is no socket", c.Conn)
}
