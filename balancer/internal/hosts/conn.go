package hosts

import (
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/connectivity"
)

// Conn is one connection. Its methods may be called on a nil Conn, which is that
// of a connection nobody tracks.
type Conn struct {
	registry *Registry
	address  string
	sc       SubConn
	host     atomic.Pointer[Host] // nil: no endpoint has the address

	// The rest is guarded by Registry.mu.
	owner owner
	state connectivity.State
}

// owner is who decides on the end of a connection.
type owner int

const (
	nobody       owner = iota // it is not in the Registry yet
	policyOwned               // the policy that made it
	sessionOwned              // the Registry
	gone                      // it is not in the Registry any more
)

// NewConn returns the Conn of a connection to an address. The Registry does not
// have it before Add or Own.
func (r *Registry) NewConn(address string, sc SubConn) *Conn {
	return &Conn{registry: r, address: address, sc: sc, state: connectivity.Idle}
}

// Add puts in the Registry what a policy has made, unless it was abandoned
// meanwhile.
func (c *Conn) Add() {
	if c != nil {
		c.add(policyOwned)
	}
}

// Own puts in the Registry what was made for sessions alone. It reports false if
// there is no use for it.
func (c *Conn) Own() bool { return c.add(sessionOwned) }

func (c *Conn) add(o owner) bool {
	r := c.registry
	r.mu.Lock()
	h := r.Host(c.address)
	if c.owner != nobody || o == sessionOwned && (r.closed || h == nil) {
		r.mu.Unlock()
		return false
	}
	c.owner = o
	c.host.Store(h)
	r.conns[c.address] = append(r.conns[c.address], c)
	r.refreshLocked(c.address)
	r.mu.Unlock()
	if h != nil {
		r.changed()
	}
	return true
}

// Host returns the Host that the connection leads to, or nil.
func (c *Conn) Host() *Host {
	if c == nil {
		return nil
	}
	return c.host.Load()
}

// Report takes note of a state that gRPC reports.
func (c *Conn) Report(s connectivity.State) {
	if c == nil {
		return
	}
	r := c.registry
	var released []*Conn
	r.mu.Lock()
	c.state = s
	if c.owner == nobody || c.owner == gone {
		r.mu.Unlock()
		return
	}
	switch {
	case s == connectivity.Shutdown:
		r.removeLocked(c)
	case s == connectivity.Ready && c.owner == policyOwned:
		// What was kept for sessions has a successor.
		for _, other := range slices.Clone(r.conns[c.address]) {
			if other.owner == sessionOwned {
				r.removeLocked(other)
				released = append(released, other)
			}
		}
	}
	r.refreshLocked(c.address)
	tracked := c.host.Load() != nil
	r.mu.Unlock()
	releaseAll(released)
	if tracked {
		r.changed()
	}
}

// Abandon is called when a policy gives the connection up. It reports whether the
// Registry keeps it, because a session uses it; otherwise it is forgotten.
func (c *Conn) Abandon() (kept bool) {
	if c == nil {
		return false
	}
	r := c.registry
	r.mu.Lock()
	if c.owner == nobody {
		c.owner = gone
	}
	if c.owner != policyOwned {
		r.mu.Unlock()
		return false
	}
	if kept = r.keepsLocked(c); kept {
		c.owner = sessionOwned
	} else {
		r.removeLocked(c)
	}
	r.refreshLocked(c.address)
	tracked := c.host.Load() != nil
	r.mu.Unlock()
	if kept {
		r.kept()
	}
	if tracked {
		r.changed()
	}
	return kept
}

// keepsLocked is the rule of gRFC A75 for connections that the child policy
// gives up, as far as there is a connection to keep and no other one in its
// place. That the endpoint is DRAINING, or in a priority that is not in use, makes
// no difference.
func (r *Registry) keepsLocked(c *Conn) bool {
	h := c.host.Load()
	if r.closed || h == nil || !h.Endpoint().Wanted || c.state != connectivity.Ready && c.state != connectivity.Connecting {
		return false
	}
	for _, other := range r.conns[c.address] {
		if other != c && other.state == connectivity.Ready {
			return false
		}
	}
	timeout := r.sessions.IdleTimeout
	return h.idle(time.Now(), timeout) < timeout
}

func (r *Registry) removeLocked(c *Conn) {
	c.owner = gone
	conns := slices.DeleteFunc(r.conns[c.address], func(other *Conn) bool { return other == c })
	if len(conns) == 0 {
		delete(r.conns, c.address)
	} else {
		r.conns[c.address] = conns
	}
	if h := c.host.Load(); h != nil {
		h.adopt(conns)
	}
}

func (r *Registry) refreshLocked(address string) {
	if h := r.Host(address); h != nil {
		h.adopt(r.conns[address])
	}
}

// rank orders connections to one address by how soon they can take an RPC.
func rank(s connectivity.State) int {
	switch s {
	case connectivity.Ready:
		return 3
	case connectivity.Connecting:
		return 2
	case connectivity.Idle:
		return 1
	default:
		return 0
	}
}

// adopt makes the best of conns, the last of several that are as good, the
// connection of h.
func (h *Host) adopt(conns []*Conn) {
	var best *Conn
	for _, c := range conns {
		if best == nil || rank(c.state) >= rank(best.state) {
			best = c
		}
	}
	if best == nil {
		h.current.Store(nil)
		return
	}
	if was := h.current.Load(); was == nil || was.sc != best.sc || was.state != best.state {
		h.current.Store(&current{sc: best.sc, state: best.state})
	}
}
