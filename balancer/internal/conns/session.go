package conns

import (
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Session is what sessions know of one address: it is an entry in the map of
// xds_override_host (gRFCs A55, A61, A75). Its methods take no lock.
type Session struct {
	// Address is "host:port".
	Address string
	// Requested is set by a pick that asks for a connection, until that has been dealt with.
	Requested atomic.Bool

	endpoint atomic.Pointer[Endpoint]
	current  atomic.Pointer[current]
	used     atomic.Int64 // the last time that a session used it, in Unix nanoseconds
}

// Endpoint is the endpoint that a Session leads to. It is immutable.
type Endpoint struct {
	// Addresses are all addresses of the endpoint, separated by commas, that of the Session
	// first.
	Addresses string
	// Allowed says that override_host_status has the health status of the endpoint.
	Allowed bool
	// Locality is where it is.
	Locality xdsresource.LocalityID
}

// current is the best connection to an address.
type current struct {
	conn  *Conn
	state connectivity.State
}

// Endpoint returns the endpoint that s leads to.
func (s *Session) Endpoint() *Endpoint { return s.endpoint.Load() }

// Conn returns the best connection, nil if there is none, and its state.
func (s *Session) Conn() (*Conn, connectivity.State) {
	if c := s.current.Load(); c != nil {
		return c.conn, c.state
	}
	return nil, connectivity.Idle
}

// Use records that a session uses the address now.
func (s *Session) Use() { s.used.Store(time.Now().UnixNano()) }

// idle returns how long no session has used s; limit if none ever has.
func (s *Session) idle(now time.Time, limit time.Duration) time.Duration {
	used := s.used.Load()
	if used == 0 {
		return limit
	}
	return now.Sub(time.Unix(0, used))
}

// Tracking reports whether Track was called.
func (r *Registry) Tracking() bool { return r.table.Load() != nil }

func (r *Registry) sessionTable() pmap.Map[*Record] {
	if table := r.table.Load(); table != nil {
		return *table
	}
	return pmap.Map[*Record]{}
}

// Session returns the Session of an address, or nil. It takes no lock.
func (r *Registry) Session(address string) *Session {
	if rec, ok := r.sessionTable().Get(address); ok {
		return rec.session.Load()
	}
	return nil
}

// Version is to be read before a pick looks at Sessions, for Await.
func (r *Registry) Version() uint64 { return r.version.Load() }

// Await has changed called at the next change. It reports false if there was a change
// since Version returned version: the pick has to look again.
func (r *Registry) Await(version uint64) bool {
	r.waiting.Store(true)
	return r.version.Load() == version
}

// notify has the picks that wait look again.
func (r *Registry) notify() {
	r.version.Add(1)
	if r.waiting.Load() && r.waiting.Swap(false) {
		r.changed()
	}
}

func (u *update) setSession(address string, rec *Record, f facts) {
	s := rec.session.Load()
	if s == nil {
		s = &Session{Address: address}
	}
	now := Endpoint{
		Addresses: joinAddresses(f.endpoint, address), Allowed: u.Sessions.Statuses.Has(f.endpoint.Health), Locality: *f.locality,
	}
	if old := s.endpoint.Load(); old == nil || *old != now {
		changed := now // so that only what changes is allocated
		s.endpoint.Store(&changed)
	}
	rec.session.Store(s)
	if !now.Allowed {
		u.release(rec)
	}
	rec.refresh()
	u.table.Set(address, rec)
}

// release removes the connections to rec that are kept for sessions.
func (u *update) release(rec *Record) {
	u.released = append(u.released, u.registry.takeSessionsOwned(rec)...)
}

// joinAddresses joins the addresses of e, first the given one (gRFC A61, "Changes to
// Stateful Session Affinity").
func joinAddresses(e *xdsresource.Endpoint, first string) string {
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

// refresh makes the best connection to the address that of its Session, the last one of
// several that are equally good. Registry.mu is held.
func (rec *Record) refresh() {
	s := rec.session.Load()
	if s == nil {
		return
	}
	var best *Conn
	for _, c := range rec.conns {
		if !c.several && (best == nil || rank(c.state) >= rank(best.state)) {
			best = c
		}
	}
	if best == nil {
		s.current.Store(nil)
		return
	}
	if old := s.current.Load(); old == nil || old.conn != best || old.state != best.state {
		s.current.Store(&current{conn: best, state: best.state})
	}
}

// rank orders states by how soon a connection in them can take an RPC.
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

// Sweep releases the connections that no session has used for the idle timeout. It
// returns the time until the next one is due, and whether there is one (gRFC A75, "Changes
// in xds_override_host LB Policy").
func (r *Registry) Sweep() (wait time.Duration, more bool) {
	now := time.Now()
	var due []*Conn
	r.mu.Lock()
	timeout := r.config.Sessions.IdleTimeout
	for _, rec := range r.records {
		for _, c := range rec.conns {
			if c.owner != sessionsOwned {
				continue
			}
			left := timeout - rec.session.Load().idle(now, timeout)
			if left <= 0 {
				due = append(due, c)
			} else if !more || left < wait {
				wait, more = left, true
			}
		}
	}
	for _, c := range due {
		r.removeLocked(c)
	}
	r.mu.Unlock()
	releaseAll(due)
	if len(due) > 0 {
		r.notify()
	}
	return wait, more
}

// Close releases the connections that are kept for sessions. From now on none is kept.
func (r *Registry) Close() {
	var kept []*Conn
	r.mu.Lock()
	r.closed = true
	for _, rec := range r.records {
		kept = append(kept, r.takeSessionsOwned(rec)...)
	}
	r.mu.Unlock()
	releaseAll(kept)
}
