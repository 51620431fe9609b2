package memnet

import (
	"bytes"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// conn is an end of a connection.
type conn struct {
	network       *Network
	path          *path
	local, remote address
	// accepted says that it is the server's end.
	accepted bool
	peer     *conn
	// in is what arrives here.
	in *half
}

// half is one direction of a connection. What is in it waits to be read. Network.mu guards it.
type half struct {
	// chunks are in the order of their arrival.
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

func newHalf() *half { return &half{wake: make(chan struct{}, 1)} }

// notify wakes the reader.
func (h *half) notify() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// fail ends the half.
func (h *half) fail(err error) {
	if h.failed == nil {
		h.failed = err
	}
	h.notify()
}

// lose drops what is under way, and all that is sent later.
func (h *half) lose() {
	h.chunks, h.lost = nil, true
}

// send adds a chunk that arrives after the latency, and after those before it. A sender does not notice that the reader
// has closed its end: it reads to the end of what the reader has sent, as with TCP.
func (h *half) send(b []byte, latency time.Duration) {
	if h.failed != nil || h.lost {
		return
	}
	due := time.Now().Add(latency)
	if n := len(h.chunks); n > 0 && h.chunks[n-1].due.After(due) {
		due = h.chunks[n-1].due
	}
	h.chunks = append(h.chunks, chunk{due, bytes.Clone(b)})
	h.notify()
}

// take reads what has arrived. If there is nothing, wait is when something is due, or zero.
func (h *half) take(b []byte, cut bool) (n int, wait time.Time, err error) {
	now := time.Now()
	switch {
	case h.failed != nil:
		return 0, wait, h.failed
	case !h.deadline.IsZero() && !h.deadline.After(now):
		return 0, wait, os.ErrDeadlineExceeded
	}
	wait = h.deadline
	if cut || len(h.chunks) == 0 {
		return 0, wait, nil
	}
	first := &h.chunks[0]
	if first.due.After(now) {
		if wait.IsZero() || first.due.Before(wait) {
			wait = first.due
		}
		return 0, wait, nil
	}
	if len(first.bytes) == 0 {
		return 0, wait, io.EOF
	}
	for len(h.chunks) > 0 && n < len(b) {
		next := &h.chunks[0]
		if next.due.After(now) || len(next.bytes) == 0 {
			break
		}
		copied := copy(b[n:], next.bytes)
		n += copied
		next.bytes = next.bytes[copied:]
		if len(next.bytes) == 0 {
			h.chunks = h.chunks[1:]
		}
	}
	return n, wait, nil
}

// wait returns when something may have changed: at a time, unless it is zero, when the path is
// mended, or before.
func (h *half) wait(until time.Time, mended <-chan struct{}) {
	var due <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-h.wake:
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
		cut := c.path.cut
		n, wait, err := c.in.take(b, cut != nil)
		c.network.mu.Unlock()
		if n > 0 || err != nil {
			return n, err
		}
		c.in.wait(wait, cut)
	}
}

// Write implements net.Conn. It never blocks: what a peer does not read is bounded by the flow control of HTTP/2.
func (c *conn) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.in.failed != nil {
		return 0, c.in.failed
	}
	c.peer.in.send(b, c.latency())
	return len(b), nil
}

// latency is that of what is sent here. The caller holds Network.mu.
func (c *conn) latency() time.Duration {
	if c.accepted {
		return c.path.back
	}
	return c.path.there
}

// Close implements net.Conn. The peer reads to the end what was sent.
func (c *conn) Close() error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	c.in.fail(net.ErrClosed)
	c.peer.in.send(nil, c.latency())
	c.leave()
	return nil
}

// reset ends both directions at once, with what is under way. The caller holds Network.mu.
func (c *conn) reset() {
	c.in.fail(syscall.ECONNRESET)
	c.peer.in.fail(syscall.ECONNRESET)
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
	c.in.deadline = t
	c.in.notify()
	return nil
}

// SetDeadline implements net.Conn. Writing needs none.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
