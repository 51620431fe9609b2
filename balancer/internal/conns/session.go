package conns

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

// minIdleTimeout is the least idle timeout of sessions: the minimum time between two sweeps of gRFC A75.
const minIdleTimeout = 5 * time.Second

// ForSession returns the connection for an RPC of a session, which asks for one of the addresses (gRFCs A55, A61, and A75, "Changes
// in xds_override_host LB Policy"), nil if the policies have to pick. wait says that the RPC has to wait for a connection. It takes
// no lock. From the first call on, sessions that wait are told of changes.
func (r *Registry) ForSession(addresses []string) (c *Conn, wait bool) {
	if !r.sessions.Load() {
		r.sessions.Store(true)
	}
	c, connect, wait := r.look(addresses)
	if connect != nil {
		connect.Use()
		if connect.requested.CompareAndSwap(false, true) {
			go r.Pool.post(func() { r.connect(connect) })
		}
	}
	return c, wait
}

// look is the picker of gRFC A75.
func (r *Registry) look(addresses []string) (c *Conn, connect *Record, wait bool) {
	var idle, missing *Record
	for _, a := range addresses {
		rec := r.record(a)
		if rec == nil || !rec.configured() || !rec.allowed.Load() {
			continue
		}
		c := rec.conn.Load()
		if c == nil {
			missing = cmp.Or(missing, rec)
			continue
		}
		switch c.State() {
		case connectivity.Ready:
			return c, nil, false
		case connectivity.Connecting:
			wait = true
		case connectivity.Idle:
			idle = cmp.Or(idle, rec)
		}
	}
	switch {
	case idle != nil:
		return nil, idle, true
	case wait:
		return nil, nil, true
	default:
		return nil, missing, missing != nil
	}
}

// connect is called for a pick, perhaps some time after it, on the goroutine of Update.
func (r *Registry) connect(rec *Record) {
	rec.requested.Store(false)
	switch c := rec.conn.Load(); {
	case !rec.configured():
	case c != nil && c.State() == connectivity.Idle:
		c.Connect()
	case c == nil:
		opened, e := new(Conn), rec.endpoint.Load()
		to := []resolver.Address{r.Bundle.Address(rec.Address, e.Hostname, e.Proxy)}
		if r.open(opened, to, balancer.NewSubConnOptions{}) != nil {
			return // The channel is being closed.
		}
		opened.Connect()
		r.Pool.mu.Lock()
		opened.record.reviewLocked()
		r.Pool.unlock()
	}
}

// configured reports whether the configuration has the address.
func (rec *Record) configured() bool { return rec.addresses.Load() != nil }

// Addresses returns all addresses of the endpoint, separated by commas, that of the Record first; nil if the
// configuration does not have the address any more.
func (rec *Record) Addresses() *string { return rec.addresses.Load() }

// Use records that a session uses the address now.
func (rec *Record) Use() { rec.used.Store(time.Now().UnixNano()) }

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
	return slices.Index([]connectivity.State{connectivity.Idle, connectivity.Connecting, connectivity.Ready}, s)
}

// reviewLocked releases the connections to the address that no policy uses, unless sessions keep them.
func (rec *Record) reviewLocked() {
	for _, c := range slices.Clone(rec.conns) {
		if c.user != nil {
			continue
		}
		if left := c.leftLocked(); left > 0 {
			c.kept.Start(left, c.link.pool.locked, rec.reviewLocked)
		} else {
			c.releaseLocked()
		}
	}
}

// leftLocked returns how long sessions keep the connection from now on (gRFC A75, "Changes in xds_override_host LB Policy"): until none has
// used the endpoint for the idle timeout, if no other connection to the endpoint is READY. A connection through another proxy than
// new connections use is not kept (gRFC A86). Endpoints that are DRAINING, or in a priority that is not in use, are no exception.
func (c *Conn) leftLocked() time.Duration {
	r, rec, used := c.registry, c.record, c.record.used.Load()
	if used == 0 || c.Session() == nil || !rec.allowed.Load() || c.proxy != rec.endpoint.Load().Proxy ||
		slices.ContainsFunc(rec.conns, func(other *Conn) bool {
			return other != c && !other.several && other.connectivity() == connectivity.Ready
		}) {
		return 0
	}
	return max(r.config.Sessions.IdleTimeout, minIdleTimeout) - time.Since(time.Unix(0, used))
}
