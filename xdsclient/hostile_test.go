package xdsclient

import (
	"net"
	"sync"
)

// stallingConn lets only so many bytes through to its reader until it is closed.
type stallingConn struct {
	net.Conn
	left   int
	closed chan struct{}
	once   sync.Once
}

func (c *stallingConn) Read(b []byte) (int, error) {
	if c.left == 0 {
		<-c.closed
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

func (c *stallingConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// stall has further connections let only so many bytes through to the client, until flow.
func (s *script) stall(left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wire = func(conn net.Conn) net.Conn {
		c := &stallingConn{Conn: conn, left: left, closed: make(chan struct{})}
		s.stalled = append(s.stalled, c)
		return c
	}
}

// flow closes the connections that stall, and lets further ones do as usual.
func (s *script) flow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wire = nil
	for _, c := range s.stalled {
		c.Close()
	}
}
