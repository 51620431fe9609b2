// Package health is where the connections of a cluster and its outlier
// detection meet: connections count how RPCs ended, and learn that their
// endpoint is ejected.
//
// It decides nothing: package outlier does. As connections come and go on
// goroutines of their own, a Registry may be used from any.
package health

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
)

// Registry has the endpoints of one cluster by their addresses.
type Registry struct {
	mu        sync.Mutex
	addresses map[string]*address
}

// address leads from a connection to its endpoint, which changes when the
// endpoint gets or loses another address (gRFC A61, "Outlier Detection").
type address struct {
	endpoint atomic.Pointer[Endpoint] // nil: there is none with the address
	conns    map[*Conn]struct{}       // guarded by Registry.mu
}

// Endpoint is one endpoint, at one or more addresses.
type Endpoint struct {
	calls   atomic.Pointer[Calls]
	ejected atomic.Bool
}

// Calls counts how RPCs ended.
type Calls struct{ Succeeded, Failed atomic.Uint64 }

// Conn is one connection.
type Conn struct {
	registry *Registry
	name     string
	address  *address
	changed  func()
}

// NewRegistry returns a Registry without endpoints.
func NewRegistry() *Registry { return &Registry{addresses: make(map[string]*address)} }

// NewEndpoint returns an endpoint that is not ejected.
func NewEndpoint() *Endpoint {
	e := new(Endpoint)
	e.calls.Store(new(Calls))
	return e
}

// Update makes the endpoints of the cluster those of byAddress. Connections
// learn if their endpoint is ejected and the one before was not, or the other
// way round.
func (r *Registry) Update(byAddress map[string]*Endpoint) {
	r.mu.Lock()
	var news []*Conn
	set := func(name string, a *address, e *Endpoint) {
		before := a.endpoint.Swap(e)
		if before.isEjected() != e.isEjected() {
			for c := range a.conns {
				news = append(news, c)
			}
		}
		if e == nil && len(a.conns) == 0 {
			delete(r.addresses, name)
		}
	}
	for name, a := range r.addresses {
		set(name, a, byAddress[name])
	}
	for name, e := range byAddress {
		set(name, r.at(name), e)
	}
	r.mu.Unlock()
	for _, c := range news {
		c.changed()
	}
}

func (r *Registry) at(name string) *address {
	a := r.addresses[name]
	if a == nil {
		a = &address{conns: make(map[*Conn]struct{})}
		r.addresses[name] = a
	}
	return a
}

// Eject sets whether e is ejected, and lets its connections know.
func (r *Registry) Eject(e *Endpoint, ejected bool) {
	if e.ejected.Swap(ejected) == ejected {
		return
	}
	r.mu.Lock()
	var news []*Conn
	for _, a := range r.addresses {
		if a.endpoint.Load() == e {
			for c := range a.conns {
				news = append(news, c)
			}
		}
	}
	r.mu.Unlock()
	for _, c := range news {
		c.changed()
	}
}

// Connect returns the Conn of a connection to an address, to be closed. changed
// is called, on the goroutine of Update or Eject, when Ejected has changed.
func (r *Registry) Connect(name string, changed func()) *Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &Conn{registry: r, name: name, address: r.at(name), changed: changed}
	c.address.conns[c] = struct{}{}
	return c
}

// Close is the end of the connection. It may be called on a nil Conn.
func (c *Conn) Close() {
	if c == nil {
		return
	}
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	delete(c.address.conns, c)
	if len(c.address.conns) == 0 && c.address.endpoint.Load() == nil && c.registry.addresses[c.name] == c.address {
		delete(c.registry.addresses, c.name)
	}
}

// Ejected reports whether the connection's endpoint is ejected. A nil Conn's
// is not.
func (c *Conn) Ejected() bool { return c != nil && c.address.endpoint.Load().isEjected() }

// Count counts an RPC on the connection by how it ended. It takes no lock and
// may be called on a nil Conn.
func (c *Conn) Count(info balancer.DoneInfo) {
	if c == nil {
		return
	}
	e := c.address.endpoint.Load()
	if e == nil {
		return
	}
	switch calls := e.calls.Load(); {
	case info.Err != nil:
		calls.Failed.Add(1)
	case info.BytesReceived:
		calls.Succeeded.Add(1)
	default:
		// gRPC picked again, as the connection had ended in between.
	}
}

// Take returns how RPCs have ended since the last Take.
func (e *Endpoint) Take() (succeeded, failed uint64) {
	calls := e.calls.Swap(new(Calls))
	return calls.Succeeded.Load(), calls.Failed.Load()
}

// Ejected reports whether e is ejected.
func (e *Endpoint) Ejected() bool { return e.isEjected() }

func (e *Endpoint) isEjected() bool { return e != nil && e.ejected.Load() }
