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

// Accept implements net.Listener. Between the client's connection and the server's is a pipe.
func (l *linkListener) Accept() (net.Conn, error) {
	client, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	server, far := net.Pipe()
	l.link.carry(client, far, &l.link.toServer)
	l.link.carry(far, client, &l.link.toClient)
	return &linkConn{server, client, l.link}, nil
}

const (
	// linkChunk is the size of a chunk, and linkWindow the number of chunks that may be under way in
	// one direction.
	linkChunk  = 16 << 10
	linkWindow = 256
	// linger bounds how long a client that does not read keeps a closed connection open.
	linger = 5 * time.Second
)

// chunk is bytes, or without bytes their end, on the way until due.
type chunk struct {
	due   time.Time
	bytes []byte
}

// after returns the time of arrival of what is sent now.
func after(delay *atomic.Int64) time.Time { return time.Now().Add(time.Duration(delay.Load())) }

// carry carries bytes until one of the connections ends, and closes the other when everything has arrived there.
func (l *Link) carry(from, to net.Conn, delay *atomic.Int64) {
	underWay := make(chan chunk, linkWindow)
	l.carrying.Go(func() {
		defer close(underWay)
		b := make([]byte, linkChunk)
		for {
			n, err := from.Read(b)
			underWay <- chunk{after(delay), bytes.Clone(b[:n])}
			if err != nil {
				return
			}
		}
	})
	l.carrying.Go(func() {
		defer to.Close()
		var failed error // what comes after it is lost, until the other direction has ended too
		for next := range underWay {
			<-time.After(time.Until(next.due))
			if failed == nil && len(next.bytes) > 0 {
				_, failed = to.Write(next.bytes)
			}
		}
	})
}

// linkConn is the server's side of a connection.
type linkConn struct {
	net.Conn
	client net.Conn
	link   *Link
}

// LocalAddr implements net.Conn.
func (c *linkConn) LocalAddr() net.Addr { return c.client.LocalAddr() }

// RemoteAddr implements net.Conn.
func (c *linkConn) RemoteAddr() net.Addr { return c.client.RemoteAddr() }

// Close ends the connection for the server at once, and for the client when everything has arrived.
func (c *linkConn) Close() error {
	_ = c.client.SetWriteDeadline(after(&c.link.toClient).Add(linger))
	return c.Conn.Close()
}
