// Package hosts knows the endpoints of one cluster by their addresses, and the
// connection to each.
//
// It is for RPCs that a filter keeps with an endpoint (gRFCs A55, A61, A75: it is
// the map of xds_override_host). Until there is such an RPC it knows the
// connections and nothing else. It picks nothing and opens no connection, which
// package cluster does; but it keeps connections that policies give up, for as
// long as sessions use them.
//
// Connections report from goroutines of gRPC's, so a Registry may be used from
// any. What picks call takes no lock. Its own lock is held for no call to
// anything outside.
package hosts

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Registry has the addresses of one cluster's endpoints and the connections.
type Registry struct {
	news func()
	kept func()

	// table is nil until the first Update.
	table atomic.Pointer[map[string]*Host]
	// version numbers the changes of what picks see; waiting says that a pick
	// waits for the next.
	version atomic.Uint64
	waiting atomic.Bool

	mu       sync.Mutex
	conns    map[string][]*Conn
	sessions xdsresource.Sessions
	closed   bool
}

// Host is one address of an endpoint.
type Host struct {
	// Address is "host:port".
	Address string
	// Asked is set by the pick that asks for a connection, until that is dealt
	// with.
	Asked atomic.Bool
	// Unreachable is set if gRPC refuses to make a connection, until the next
	// Update.
	Unreachable atomic.Bool

	endpoint atomic.Pointer[Endpoint]
	current  atomic.Pointer[current]
	used     atomic.Int64 // when a session last did, in Unix nanoseconds
}

// Endpoint is what is known of the endpoint at a Host. It is immutable.
type Endpoint struct {
	// Addresses are all addresses of the endpoint, separated by commas, that of the
	// Host first.
	Addresses string
	// Wanted says that RPCs of sessions may go to it.
	Wanted bool
}

// current is the best connection to a Host.
type current struct {
	sc    SubConn
	state connectivity.State
}

// SubConn is the side of a connection that is turned to the Registry.
type SubConn interface {
	balancer.SubConn
	// Release ends the connection, which nobody uses any more.
	Release()
}

// New returns a Registry without endpoints. news is called when picks that wait
// should look again, kept when the Registry has kept a connection. Both are
// called from any goroutine and must not wait.
func New(news, kept func()) *Registry {
	return &Registry{news: news, kept: kept, conns: make(map[string][]*Conn)}
}

// Tracking reports whether there was an Update.
func (r *Registry) Tracking() bool { return r.table.Load() != nil }

// Host returns the Host at the address, or nil.
func (r *Registry) Host(address string) *Host {
	if table := r.table.Load(); table != nil {
		return (*table)[address]
	}
	return nil
}

// Version is to be read before a pick looks at Hosts, for Await.
func (r *Registry) Version() uint64 { return r.version.Load() }

// Await has news called at the next change. It reports false if there was one
// since version was read, so that the pick has to look again.
func (r *Registry) Await(version uint64) bool {
	r.waiting.Store(true)
	return r.version.Load() == version
}

func (r *Registry) changed() {
	r.version.Add(1)
	if r.waiting.Load() && r.waiting.Swap(false) {
		r.news()
	}
}

// Endpoint returns the endpoint at h.
func (h *Host) Endpoint() *Endpoint { return h.endpoint.Load() }

// Conn returns the best connection to h, nil if there is none, and its state.
func (h *Host) Conn() (SubConn, connectivity.State) {
	if c := h.current.Load(); c != nil {
		return c.sc, c.state
	}
	return nil, connectivity.Idle
}

// Use notes that a session uses h now.
func (h *Host) Use() { h.used.Store(time.Now().UnixNano()) }

// idle is how long no session has used h; it is no less than most if none ever
// has.
func (h *Host) idle(now time.Time, most time.Duration) time.Duration {
	used := h.used.Load()
	if used == 0 {
		return most
	}
	return now.Sub(time.Unix(0, used))
}

// Update makes the endpoints of the cluster those of localities. Connections kept
// for sessions that may not go on are released.
func (r *Registry) Update(localities []xdsresource.Locality, sessions xdsresource.Sessions) {
	before := r.table.Load()
	table := make(map[string]*Host)
	for i := range localities {
		for j := range localities[i].Endpoints {
			e := &localities[i].Endpoints[j]
			addHost(table, before, e, e.Address, sessions)
			for _, a := range e.Additional {
				addHost(table, before, e, a, sessions)
			}
		}
	}
	r.mu.Lock()
	r.sessions = sessions
	var released []*Conn
	for address, conns := range r.conns {
		h := table[address]
		for _, c := range slices.Clone(conns) {
			c.host.Store(h)
			if c.owner == sessionOwned && (h == nil || !h.Endpoint().Wanted) {
				r.removeLocked(c)
				released = append(released, c)
			}
		}
		if h != nil {
			h.adopt(r.conns[address])
		}
	}
	r.table.Store(&table)
	r.mu.Unlock()
	releaseAll(released)
	r.changed()
}

func addHost(table map[string]*Host, before *map[string]*Host, e *xdsresource.Endpoint, address string, sessions xdsresource.Sessions) {
	var h *Host
	if before != nil {
		h = (*before)[address]
	}
	if h == nil {
		h = &Host{Address: address}
	}
	h.Unreachable.Store(false)
	now := Endpoint{Addresses: addressesOf(e, address), Wanted: sessions.Statuses.Has(e.Health)}
	if was := h.endpoint.Load(); was == nil || *was != now {
		h.endpoint.Store(&now)
	}
	table[address] = h
}

// addressesOf joins the addresses of e, first the given one (gRFC A61, "Changes
// to Stateful Session Affinity").
func addressesOf(e *xdsresource.Endpoint, first string) string {
	if len(e.Additional) == 0 {
		return first
	}
	list := []string{first}
	for _, a := range append([]string{e.Address}, e.Additional...) {
		if a != first {
			list = append(list, a)
		}
	}
	return strings.Join(list, ",")
}

// Sweep releases the connections that no session has used for the idle timeout.
// It returns how long it will be until the next one is due, and whether there is
// one (gRFC A75, "Changes in xds_override_host LB Policy").
func (r *Registry) Sweep() (wait time.Duration, more bool) {
	now := time.Now()
	var released []*Conn
	r.mu.Lock()
	timeout := r.sessions.IdleTimeout
	for address, conns := range r.conns {
		for _, c := range slices.Clone(conns) {
			if c.owner != sessionOwned {
				continue
			}
			left := timeout - c.host.Load().idle(now, timeout)
			if left <= 0 {
				r.removeLocked(c)
				released = append(released, c)
				continue
			}
			if !more || left < wait {
				wait, more = left, true
			}
		}
		r.refreshLocked(address)
	}
	r.mu.Unlock()
	releaseAll(released)
	if len(released) > 0 {
		r.changed()
	}
	return wait, more
}

// Close releases what was kept, and keeps nothing from now on.
func (r *Registry) Close() {
	var released []*Conn
	r.mu.Lock()
	r.closed = true
	for _, conns := range r.conns {
		for _, c := range slices.Clone(conns) {
			if c.owner == sessionOwned {
				r.removeLocked(c)
				released = append(released, c)
			}
		}
	}
	r.mu.Unlock()
	releaseAll(released)
}

func releaseAll(conns []*Conn) {
	for _, c := range conns {
		c.sc.Release()
	}
}
