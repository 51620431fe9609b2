package testutils

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Link is the network between a server and its clients: what either side sends arrives
// after a delay, complete and in order. Sending and receiving go on meanwhile, so that a
// delay costs no bandwidth. It applies to the bytes of connections only; connecting, and
// being refused, takes no time.
//
// The zero Link has no delay. It is safe for concurrent use.
type Link struct {
	toServer, toClient atomic.Int64
	// carrying has the goroutines of the connections.
	carrying sync.WaitGroup
}

// NewLink makes a Link with a delay for each direction.
func NewLink(toServer, toClient time.Duration) *Link {
	l := new(Link)
	l.SetDelay(toServer, toClient)
	return l
}

// SetDelay changes the delays, for what is sent from now on. A shorter delay does not let
// anything overtake what was sent before.
func (l *Link) SetDelay(toServer, toClient time.Duration) {
	l.toServer.Store(int64(toServer))
	l.toClient.Store(int64(toClient))
}

// Listener puts the link in front of a server: the connections that the result accepts
// have the delays. Call Wait after the server has ended.
func (l *Link) Listener(from net.Listener) net.Listener { return &linkListener{from, l} }

// Wait returns when all connections have ended at both sides. What was sent before a
// connection was closed is delivered first.
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
	// linkChunk is how many bytes travel as one, and linkWindow how many chunks may be
	// under way in one direction.
	linkChunk  = 16 << 10
	linkWindow = 256
	// linger is how long a client that does not read may keep a closed connection open.
	linger = 5 * time.Second
)

// chunk is bytes, or the end of them, that are under way until due.
type chunk struct {
	due   time.Time
	bytes []byte
	err   error
}

// linkConn is the server's side of a connection.
type linkConn struct {
	net.Conn
	link *Link
	// in is what comes from the client, and out what goes to it.
	in, out chan chunk
	// closed is closed by Close.
	closed    chan struct{}
	closeOnce sync.Once

	reading sync.Mutex
	// rest is what was received and not read, and ended is why there is no more.
	rest  []byte
	ended error

	writing sync.Mutex
	// failed is the error of the last write to the client.
	failed atomic.Pointer[error]
}

// after returns when what is sent now arrives.
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

// receive takes what the client sends.
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

// Read returns what the client has sent when it has arrived.
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

// arrives waits until a chunk is due. It returns false if the connection is closed
// before.
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

// Write sends to the client. It waits only while the link is full.
func (c *linkConn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	sent := 0
	for sent < len(b) {
		if err := c.failed.Load(); err != nil {
			return sent, *err
		}
		n := min(len(b)-sent, linkChunk)
		next := chunk{due: after(&c.link.toClient), bytes: bytes.Clone(b[sent : sent+n])}
		select {
		case <-c.closed:
			return sent, net.ErrClosed
		default:
		}
		select {
		case c.out <- next:
			sent += n
		case <-c.closed:
			return sent, net.ErrClosed
		}
	}
	return sent, nil
}

// deliver hands to the client what the server sends, and closes the connection when all
// of it has arrived.
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

// Close ends the connection for the server at once, and for the client when everything
// that was sent to it has arrived.
func (c *linkConn) Close() error {
	c.closeOnce.Do(func() {
		_ = c.Conn.SetWriteDeadline(after(&c.link.toClient).Add(linger))
		close(c.closed)
	})
	return nil
}
