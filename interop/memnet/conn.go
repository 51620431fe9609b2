package memnet

import (
	"bytes"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// conn is an end of a connection. Network.mu guards what is not constant.
type conn struct {
	network       *Network
	path          *path
	local, remote address
	peer          *conn
	// latency is that of what is sent here.
	latency *time.Duration

	// chunks arrive here, in their order, and wait to be read.
	chunks []chunk
	// failed ends reading and writing at once.
	failed error
	// lost says that nothing arrives any more.
	lost bool
	// deadline is that of reading.
	deadline time.Time
	// wake has a token if the state may have changed since the reader looked.
	wake chan struct{}
}

// chunk is bytes that arrive when they are due; without bytes it is their end.
type chunk struct {
	due   time.Time
	bytes []byte
}

// notify wakes the reader.
func (c *conn) notify() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// fail ends this end. The caller holds Network.mu.
func (c *conn) fail(err error) {
	if c.failed == nil {
		c.failed = err
	}
	c.notify()
}

// send sends a chunk, or without bytes the end, which arrives after the latency, and after those before it. A sender does not notice that
// the peer has closed its end: it reads to the end of what the peer has sent, as with TCP. The caller holds Network.mu.
func (c *conn) send(b []byte) {
	to := c.peer
	if to.failed != nil || to.lost {
		return
	}
	due := time.Now().Add(*c.latency)
	if n := len(to.chunks); n > 0 && to.chunks[n-1].due.After(due) {
		due = to.chunks[n-1].due
	}
	to.chunks = append(to.chunks, chunk{due, bytes.Clone(b)})
	to.notify()
}

// take reads what has arrived. If there is nothing, until is when something is due, or zero. The caller holds Network.mu.
func (c *conn) take(b []byte) (n int, until time.Time, err error) {
	now := time.Now()
	switch {
	case c.failed != nil:
		return 0, until, c.failed
	case !c.deadline.IsZero() && !c.deadline.After(now):
		return 0, until, os.ErrDeadlineExceeded
	}
	until = c.deadline
	for c.path.cut == nil && len(c.chunks) > 0 && n < len(b) {
		next := &c.chunks[0]
		if next.due.After(now) {
			if until.IsZero() || next.due.Before(until) {
				until = next.due
			}
			break
		}
		if len(next.bytes) == 0 {
			if n == 0 {
				err = io.EOF
			}
			break
		}
		copied := copy(b[n:], next.bytes)
		n += copied
		if next.bytes = next.bytes[copied:]; len(next.bytes) == 0 {
			c.chunks = c.chunks[1:]
		}
	}
	return n, until, err
}

// wait returns when something may have changed: at a time, unless it is zero, when the path is
// mended, or before.
func (c *conn) wait(until time.Time, mended <-chan struct{}) {
	var due <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-c.wake:
	case <-due:
	case <-mended:
	}
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for {
		c.network.mu.Lock()
		mended := c.path.cut
		n, until, err := c.take(b)
		c.network.mu.Unlock()
		if n > 0 || err != nil {
			return n, err
		}
		c.wait(until, mended)
	}
}

// Write implements net.Conn. It never blocks: what a peer does not read is bounded by the flow control of HTTP/2.
func (c *conn) Write(b []byte) (int, error) {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.failed != nil {
		return 0, c.failed
	}
	if len(b) > 0 {
		c.send(b)
	}
	return len(b), nil
}

// Close implements net.Conn. The peer reads to the end what was sent.
func (c *conn) Close() error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	c.fail(net.ErrClosed)
	c.send(nil)
	c.leave()
	return nil
}

// reset ends both directions at once, with what is under way. The caller holds Network.mu.
func (c *conn) reset() {
	c.fail(syscall.ECONNRESET)
	c.peer.fail(syscall.ECONNRESET)
	c.leave()
}

// leave removes the connection from the network once one end has closed it. The caller holds Network.mu.
func (c *conn) leave() {
	delete(c.path.conns, c)
	delete(c.path.conns, c.peer)
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	c.deadline = t
	c.notify()
	return nil
}

// SetDeadline implements net.Conn. Writing needs none.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
