package testutils

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Link is a network with latency between a server and its clients: bytes arrive after a delay, complete
// and in order. The delay does not reduce the bandwidth, and does not apply to connecting.
//
// The zero Link has no delay. It is safe for concurrent use.
type Link struct {
	toServer, toClient atomic.Int64
	// carrying counts the goroutines of the connections.
	carrying sync.WaitGroup
}

// SetDelay changes the delays of what is sent from now on. The order of bytes is kept.
func (l *Link) SetDelay(toServer, toClient time.Duration) {
	l.toServer.Store(int64(toServer))
	l.toClient.Store(int64(toClient))
}

// Listener returns a listener whose connections have the delays. Call Wait after the server has ended.
func (l *Link) Listener(from net.Listener) net.Listener { return &linkListener{from, l} }

// Wait returns when all connections have ended at both sides. What was sent before a connection was
// closed is delivered first.
func (l *Link) Wait() { l.carrying.Wait() }

type linkListener struct {
	net.Listener
	link *Link
}

func (l *linkListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.link.carry(conn), nil
}

const (
	// linkChunk is the size of a chunk, and linkWindow the number of chunks that may be under way in
	// one direction.
	linkChunk  = 16 << 10
	linkWindow = 256
	// linger bounds how long a client that does not read keeps a closed connection open.
	linger = 5 * time.Second
)

// chunk is bytes, or their end, on the way until due.
type chunk struct {
	due   time.Time
	bytes []byte
	err   error
}

// linkConn is the server's side of a connection.
type linkConn struct {
	net.Conn
	link *Link
	// in is from the client, out to the client.
	in, out chan chunk
	// closed is closed by Close.
	closed    chan struct{}
	closeOnce sync.Once

	reading sync.Mutex
	// rest was received and not read yet; ended is the error after it.
	rest  []byte
	ended error

	writing sync.Mutex
	// failed is the error of the last write to the client.
	failed atomic.Pointer[error]
}

// after returns the time of arrival of what is sent now.
func after(delay *atomic.Int64) time.Time { return time.Now().Add(time.Duration(delay.Load())) }

func (l *Link) carry(conn net.Conn) *linkConn {
	c := &linkConn{
		Conn: conn, link: l,
		in: make(chan chunk, linkWindow), out: make(chan chunk, linkWindow),
		closed: make(chan struct{}),
	}
	l.carrying.Go(c.receive)
	l.carrying.Go(c.deliver)
	return c
}

// receive reads from the client.
func (c *linkConn) receive() {
	b := make([]byte, linkChunk)
	for {
		n, err := c.Conn.Read(b)
		next := chunk{after(&c.link.toServer), bytes.Clone(b[:n]), err}
		select {
		case c.in <- next:
		case <-c.closed:
			return
		}
		if err != nil {
			return
		}
	}
}

// Read returns bytes from the client after their delay.
func (c *linkConn) Read(b []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	for len(c.rest) == 0 {
		if c.ended != nil {
			return 0, c.ended
		}
		select {
		case next := <-c.in:
			if !c.arrives(next.due) {
				return 0, net.ErrClosed
			}
			c.rest, c.ended = next.bytes, next.err
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// arrives waits until a chunk is due. It returns false if the connection is closed before.
func (c *linkConn) arrives(due time.Time) bool {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.closed:
		return false
	}
}

// Write sends to the client. It blocks only while the link is full.
func (c *linkConn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	sent := 0
	for sent < len(b) {
		select {
		case <-c.closed:
			return sent, net.ErrClosed
		default:
		}
		if err := c.failed.Load(); err != nil {
			return sent, *err
		}
		n := min(len(b)-sent, linkChunk)
		next := chunk{due: after(&c.link.toClient), bytes: bytes.Clone(b[sent : sent+n])}
		select {
		case c.out <- next:
			sent += n
		case <-c.closed:
			return sent, net.ErrClosed
		}
	}
	return sent, nil
}

// deliver writes to the client, and closes the connection when everything has arrived.
func (c *linkConn) deliver() {
	defer c.Conn.Close()
	for {
		select {
		case next := <-c.out:
			c.hand(next)
		case <-c.closed:
			c.writing.Lock() // so that the last Write has ended
			defer c.writing.Unlock()
			for len(c.out) > 0 {
				c.hand(<-c.out)
			}
			return
		}
	}
}

func (c *linkConn) hand(next chunk) {
	if c.failed.Load() != nil {
		return
	}
	<-time.After(time.Until(next.due))
	if _, err := c.Conn.Write(next.bytes); err != nil {
		c.failed.CompareAndSwap(nil, &err)
	}
}

// Close ends the connection for the server at once, and for the client when everything has arrived.
func (c *linkConn) Close() error {
	c.closeOnce.Do(func() {
		_ = c.Conn.SetWriteDeadline(after(&c.link.toClient).Add(linger))
		close(c.closed)
	})
	return nil
}
