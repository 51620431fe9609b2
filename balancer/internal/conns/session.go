package conns

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/internal/pmap"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// session is what sessions know of one address: it is an entry in the map of
// xds_override_host (gRFCs A55, A61, A75). It is for any goroutine, without a lock.
type session struct {
	// addresses are all addresses of the endpoint, separated by commas, that of the Record first. It is nil while sessions do not
	// know the address.
	addresses atomic.Pointer[string]
	// allowed says that override_host_status has the health status of the endpoint.
	allowed atomic.Bool
	conn    atomic.Pointer[Conn] // the best connection to the address, or nil
	used    atomic.Int64         // the last time that a session used it, in Unix nanoseconds
}

func (s *session) forget() {
	s.addresses.Store(nil)
	s.allowed.Store(false)
	s.conn.Store(nil)
	s.used.Store(0)
}

// tracked reports whether sessions know the address.
func (rec *Record) tracked() bool { return rec.session.addresses.Load() != nil }

// Addresses returns all addresses of the endpoint, separated by commas, that of the Record first; nil if sessions do not know
// the address any more.
func (rec *Record) Addresses() *string { return rec.session.addresses.Load() }

// Allowed reports whether override_host_status has the health status of the endpoint.
func (rec *Record) Allowed() bool { return rec.session.allowed.Load() }

// Conn returns the best connection for sessions, nil if there is none.
func (rec *Record) Conn() *Conn { return rec.session.conn.Load() }

// Use records that a session uses the address now.
func (rec *Record) Use() { rec.session.used.Store(time.Now().UnixNano()) }

// idle returns how long no session has used the address; limit if none ever has.
func (rec *Record) idle(now time.Time, limit time.Duration) time.Duration {
	used := rec.session.used.Load()
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

// Session returns the Record of an address, nil if sessions do not know it. It takes no lock.
func (r *Registry) Session(address string) *Record {
	rec, _ := r.sessionTable().Get(address)
	return rec
}

// notify has the picks that wait for the endpoint of a session look again.
func (r *Registry) notify() {
	if r.Tracking() {
		r.changed()
	}
}

func (u *update) setSession(rec *Record, e *xdsresource.Endpoint) {
	s := &rec.session
	if now := joinAddresses(e, &rec.Address); !rec.tracked() || *s.addresses.Load() != *now {
		s.addresses.Store(now)
	}
	s.allowed.Store(u.registry.config.Sessions.Statuses.Has(e.Health))
	if !rec.Allowed() {
		rec.releaseKeptLocked()
	}
	rec.refresh()
	u.table.Set(rec.Address, rec)
}

// joinAddresses joins the addresses of e, first the given one (gRFC A61, "Changes to
// Stateful Session Affinity").
func joinAddresses(e *xdsresource.Endpoint, first *string) *string {
	if len(e.Additional) == 0 {
		return first
	}
	list := []string{*first}
	for _, a := range append([]string{e.Address}, e.Additional...) {
		if a != *first {
			list = append(list, a)
		}
	}
	joined := strings.Join(list, ",")
	return &joined
}

// refresh makes the best connection to the address that of sessions, the last one of
// several that are equally good. Pool.mu is held.
func (rec *Record) refresh() {
	if !rec.tracked() {
		return
	}
	var best *Conn
	for _, c := range rec.conns {
		if !c.several && (best == nil || rank(c.connectivity()) >= rank(best.connectivity())) {
			best = c
		}
	}
	rec.session.conn.Store(best)
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
	now, released := time.Now(), false
	r.Pool.mu.Lock()
	timeout := r.config.Sessions.IdleTimeout
	for _, rec := range r.records {
		for _, c := range slices.Clone(rec.conns) {
			if c.user != nil {
				continue
			}
			left := timeout - rec.idle(now, timeout)
			if left <= 0 {
				c.releaseLocked()
				released = true
			} else if !more || left < wait {
				wait, more = left, true
			}
		}
	}
	r.Pool.unlock()
	if released {
		r.notify()
	}
	return wait, more
}

// Close releases the connections that are kept for sessions. From now on none is kept.
func (r *Registry) Close() {
	r.Pool.mu.Lock()
	defer r.Pool.unlock()
	r.closed = true
	for _, rec := range r.records {
		rec.releaseKeptLocked()
	}
}
