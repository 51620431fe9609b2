package conns

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Session returns the Record of an address for an RPC of a session (gRFCs A55, A61, A75), nil if the configuration does not have
// the address. It takes no lock. From the first call on, sessions that wait are told of changes.
func (r *Registry) Session(address string) *Record {
	if !r.sessions.Load() {
		r.sessions.Store(true)
	}
	if rec := r.record(address); rec != nil && rec.configured() {
		return rec
	}
	return nil
}

// configured reports whether the configuration has the address.
func (rec *Record) configured() bool { return rec.addresses.Load() != nil }

// Addresses returns all addresses of the endpoint, separated by commas, that of the Record first; nil if the
// configuration does not have the address any more.
func (rec *Record) Addresses() *string { return rec.addresses.Load() }

// Allowed reports whether override_host_status has the health status of the endpoint.
func (rec *Record) Allowed() bool { return rec.allowed.Load() }

// Conn returns the best connection for sessions, nil if there is none.
func (rec *Record) Conn() *Conn { return rec.conn.Load() }

// Use records that a session uses the address now.
func (rec *Record) Use() { rec.used.Store(time.Now().UnixNano()) }

// idle returns how long no session has used the address; limit if none ever has.
func (rec *Record) idle(now time.Time, limit time.Duration) time.Duration {
	used := rec.used.Load()
	if used == 0 {
		return limit
	}
	return now.Sub(time.Unix(0, used))
}

// notify has the picks that wait for the endpoint of a session look again.
func (r *Registry) notify() {
	if r.sessions.Load() {
		r.changed()
	}
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
	var best *Conn
	for _, c := range rec.conns {
		if !c.several && (best == nil || rank(c.connectivity()) >= rank(best.connectivity())) {
			best = c
		}
	}
	rec.conn.Store(best)
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
	for rec := range r.all {
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
	for rec := range r.all {
		rec.releaseKeptLocked()
	}
}
