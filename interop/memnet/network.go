// Package memnet is a network in memory, for simulations on virtual time (testing/synctest).
//
// Hosts are names, and servers listen on addresses "IP:port". A connection carries bytes from host
// to host, complete and in order, with a latency for each direction, as TCP does. The paths
// between hosts can be cut: what is sent is kept and arrives once the path is whole again, and
// dialling waits. Connections can be reset or lost without a word, and a server that has stopped refuses them.
//
// All waiting is on channels and timers that are made by those who wait, so that the
// goroutines of a bubble that wait for the network are durably blocked. A process has one
// network for all of its bubbles: an address is given out once.
package memnet

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/dynxds/dynxds/internal/retries"
)

// Network is a network. It is safe for concurrent use.
type Network struct {
	mu        sync.Mutex
	addresses uint32
	listeners map[string]*listener
	paths     map[pathKey]*path
}

// New returns a network without hosts.
func New() *Network { return &Network{listeners: map[string]*listener{}, paths: map[pathKey]*path{}} }

// pathKey names a path by the dialling host and the address.
type pathKey struct{ from, to string }

// path is what lies between a host and an address.
type path struct {
	// there and back are the latencies.
	there, back time.Duration
	// cut is not nil while the path is cut; it is closed when it is whole again.
	cut chan struct{}
	// conns has the dialling ends.
	conns map[*conn]struct{}
}

// firstAddress is 10.0.0.1.
const firstAddress = 10<<24 + 1

// Reserve returns an address that no other call returns.
func (n *Network) Reserve() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := firstAddress + n.addresses
	n.addresses++
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)}), 443).String()
}

// Listen listens on an address.
func (n *Network) Listen(addr string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: address(addr), Err: syscall.EADDRINUSE}
	}
	l := &listener{network: n, addr: addr, waiting: make(chan *conn, backlog), closed: make(chan struct{})}
	n.listeners[addr] = l
	return l, nil
}

// on calls f with a path.
func (n *Network) on(from, to string, f func(*path)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := pathKey{from, to}
	if n.paths[k] == nil {
		n.paths[k] = &path{conns: map[*conn]struct{}{}}
	}
	f(n.paths[k])
}

// SetLatency changes the latencies of what is sent from now on.
func (n *Network) SetLatency(from, to string, there, back time.Duration) {
	n.on(from, to, func(p *path) { p.there, p.back = there, back })
}

// Cut cuts a path, until it is mended.
func (n *Network) Cut(from, to string) {
	n.on(from, to, func(p *path) {
		if p.cut == nil {
			p.cut = make(chan struct{})
		}
	})
}

// Mend makes a path whole again. What was sent meanwhile arrives.
func (n *Network) Mend(from, to string) {
	n.on(from, to, func(p *path) {
		if p.cut != nil {
			close(p.cut)
			p.cut = nil
		}
	})
}

// Reset resets the connections of a path, for both ends at once, and returns how many there were.
func (n *Network) Reset(from, to string) (open int) {
	n.on(from, to, func(p *path) {
		open = len(p.conns)
		for c := range p.conns {
			c.reset()
		}
	})
	return open
}

// Lose makes the connections of a path carry nothing any more, as if a router had forgotten them: no end hears of
// it. It returns how many there were. New connections are not affected.
func (n *Network) Lose(from, to string) (open int) {
	n.on(from, to, func(p *path) {
		open = len(p.conns)
		for c := range p.conns {
			for _, end := range []*conn{c, c.peer} {
				end.chunks, end.lost = nil, true
			}
		}
	})
	return open
}

// Forget forgets the paths from a host or to an address, which have no connections any more.
func (n *Network) Forget(end string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.paths, func(k pathKey, _ *path) bool { return k.from == end || k.to == end })
}

// Dial connects a host to an address. It takes a round trip, and waits while the path is cut.
func (n *Network) Dial(ctx context.Context, from, to string) (net.Conn, error) {
	var c *conn
	var err error
	for waited := false; c == nil && err == nil; {
		var cut chan struct{}
		var trip time.Duration
		n.on(from, to, func(p *path) {
			if cut = p.cut; !waited {
				trip = p.there + p.back
			}
			if cut == nil && trip == 0 {
				c, err = n.connect(p, from, to)
			}
		})
		switch {
		case cut != nil:
			select {
			case <-cut:
			case <-ctx.Done():
				err = ctx.Err()
			}
		case trip > 0:
			waited, err = true, retries.Wait(ctx, trip)
		}
	}
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(to), Err: err}
	}
	return c, nil
}

// connect makes the two ends of a connection. The caller holds mu.
func (n *Network) connect(p *path, from, to string) (*conn, error) {
	l := n.listeners[to]
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	client := &conn{network: n, path: p, local: address(from), remote: address(to), latency: &p.there, wake: make(chan struct{}, 1)}
	server := &conn{network: n, path: p, local: address(to), remote: address(from), latency: &p.back, wake: make(chan struct{}, 1), peer: client}
	client.peer = server
	select {
	case l.waiting <- server:
	default:
		return nil, syscall.ECONNREFUSED
	}
	p.conns[client] = struct{}{}
	return client, nil
}

// address is the address of an end of a connection.
type address string

// Network implements net.Addr.
func (address) Network() string { return "tcp" }

// String implements net.Addr.
func (a address) String() string { return string(a) }

// listener is a net.Listener.
type listener struct {
	network *Network
	addr    string
	// waiting are the connections to be accepted.
	waiting chan *conn
	closed  chan struct{}
}

// backlog is how many connections wait to be accepted; more are refused.
const backlog = 1024

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.waiting:
		return c, nil
	case <-l.closed:
		return nil, fmt.Errorf("accept %s: %w", l.addr, net.ErrClosed)
	}
}

// Close implements net.Listener. Connections that were not accepted are reset.
func (l *listener) Close() error {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if l.network.listeners[l.addr] == l { // the first time
		delete(l.network.listeners, l.addr)
		close(l.closed)
	}
	for {
		select {
		case c := <-l.waiting:
			c.reset()
		default:
			return nil
		}
	}
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return address(l.addr) }
