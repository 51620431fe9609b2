// Package admission bounds what the peers of a server make it hold before the server counts their streams and messages:
// connections, and the bytes of messages that have arrived in part.
//
// It stands between a listener and the server, and reads along:
//
//	net.Listener → Gate.Listen: a connection, or a refusal → Gate.Credentials: the frames of HTTP/2 → grpc.Server
//
// gRPC-Go has options for the rest (MaxHeaderListSize, MaxConnectionIdle, MaxConcurrentStreams, ConnectionTimeout). It has none for
// these two: it lets a client send a message as soon as it knows the message's length, on each stream, and waits for
// the end of the message as long as the client likes.
//
// A peer is a host, as package access defines it. Who that is by certificate is not known yet.
package admission

import (
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/dynxds/dynxds/mesh/internal/access"
	"github.com/dynxds/dynxds/mesh/internal/quota"
)

// Options are the limits of a Gate. A host has at most half of those of all, see [quota.Quota].
type Options struct {
	// Connections is the number of connections of all.
	Connections int
	// MessageBytes is the size of one message, which grpc.MaxRecvMsgSize sets. The messages of all that have arrived in
	// part have 16 times as much.
	MessageBytes int
	// MessageTime is how long a message may take from its first byte to its last one.
	MessageTime time.Duration
	// OnRefused is called when a connection is refused or closed, with the name of the limit that was reached, "connections" or
	// "received_bytes", the client's address, and why. Several goroutines call it, without locks. It may be nil.
	OnRefused func(limit string, from net.Addr, why error)
	// OnFailed is called when a handshake fails, like OnRefused.
	OnFailed func(from net.Addr, why error)
}

// Gate counts the connections of a server, and what arrives on them. It is safe for concurrent use.
type Gate struct {
	opts                   Options
	connections, receiving *quota.Quota[string]
	// turns are the hosts of which one connection may receive although the host has no room left: its others wait for
	// that one, so that not all of them wait for each other.
	turns sync.Map
}

// New returns a Gate without connections.
func New(opts Options) *Gate {
	if opts.OnRefused == nil {
		opts.OnRefused = func(string, net.Addr, error) {}
	}
	if opts.OnFailed == nil {
		opts.OnFailed = func(net.Addr, error) {}
	}
	return &Gate{
		opts:        opts,
		connections: quota.New[string]("connections", int64(opts.Connections)),
		receiving:   quota.New[string]("bytes of messages that have not arrived as a whole", 16*int64(opts.MessageBytes)),
	}
}

// Listen returns a listener that closes connections beyond the limits at once.
func (g *Gate) Listen(l net.Listener) net.Listener { return &listener{l, g} }

type listener struct {
	net.Listener
	gate *Gate
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host := access.Peer(&peer.Peer{Addr: c.RemoteAddr()})
		if err = l.gate.connections.Take(host, 1); err == nil {
			return &connection{Conn: c, gate: l.gate, host: host}, nil
		}
		l.gate.opts.OnRefused("connections", c.RemoteAddr(), err)
		c.Close()
	}
}

// connection is a connection that counts until it is closed.
type connection struct {
	net.Conn
	gate   *Gate
	host   string
	closed sync.Once
}

func (c *connection) Close() error {
	c.closed.Do(func() { c.gate.connections.Give(c.host, 1) })
	return c.Conn.Close()
}

// Credentials returns credentials that follow the frames of a connection, from its handshake on.
func (g *Gate) Credentials(c credentials.TransportCredentials) credentials.TransportCredentials {
	return &follower{c, g}
}

type follower struct {
	credentials.TransportCredentials
	gate *Gate
}

// ServerHandshake implements credentials.TransportCredentials.
func (f *follower) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	clear, info, err := f.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		f.gate.opts.OnFailed(raw.RemoteAddr(), err)
	}
	if c, ok := raw.(*connection); ok && err == nil {
		clear = newReceiver(clear, c.gate, c.host)
	}
	return clear, info, err
}

// Clone implements credentials.TransportCredentials.
func (f *follower) Clone() credentials.TransportCredentials {
	return &follower{f.TransportCredentials.Clone(), f.gate}
}
