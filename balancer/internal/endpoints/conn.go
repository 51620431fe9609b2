package endpoints

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/internal/changes"
)

// SubConn is what a connection is to the Registry.
type SubConn interface {
	balancer.SubConn
	// Release closes the connection, which the Registry has kept for sessions.
	Release()
	// EjectionChanged is called when Conn.Ejected has changed.
	EjectionChanged()
	// HealthCheckChanged is called when Registry.HealthCheck has changed.
	HealthCheckChanged()
}

// Conn is the Registry's side of one connection. It must not be copied after Add or Own.
type Conn struct {
	record *Record // set by Add and Own
	// several says that the connection leads to one of several addresses, it is not known
	// which. Outlier detection and sessions ignore it.
	several  bool
	registry *Registry
	address  string
	proxy    string // of the endpoint when the connection was opened
	user     SubConn

	// The rest is guarded by Registry.mu.

	owner owner
	state connectivity.State
	since time.Time // of state, or of the failure that attempts to connect again have not ended; zero before the first report
	// broken says that it has failed, and not been READY since.
	broken bool
	check  string // the last answer of the health check, or ""
}

// owner decides when a connection is closed.
type owner int

const (
	unregistered  owner = iota // neither Add nor Own was called yet
	policyOwned                // the policy that opened it
	sessionsOwned              // the Registry
	released                   // the Registry does not have it any more
)

// NewConn returns the Conn of a connection that user opens to an address, or, if there
// are several, to the first of several. The Registry does not have it before Add or Own.
func (r *Registry) NewConn(user SubConn, address string, several bool) Conn {
	return Conn{registry: r, address: address, user: user, several: several, state: connectivity.Idle}
}

// Add registers a connection that a policy has opened, unless it was abandoned already.
func (c *Conn) Add() { c.add(policyOwned) }

// Own registers a connection that was opened for sessions. It reports false, and the
// caller has to close the connection, if sessions may not use the address any more.
func (c *Conn) Own() bool { return c.add(sessionsOwned) }

func (c *Conn) add(o owner) bool {
	r := c.registry
	r.mu.Lock()
	rec := r.records[c.address]
	if rec == nil {
		rec = new(Record)
		if r.config.Loads != nil {
			rec.target.Store(r.config.Loads.elsewhere)
		}
	}
	c.record, c.proxy = rec, rec.proxy
	tracked := rec.session.Load() != nil
	if c.owner != unregistered || o == sessionsOwned && (r.closed || !tracked) {
		r.mu.Unlock()
		return false
	}
	c.owner = o
	r.records[c.address] = rec
	rec.conns = append(rec.conns, c)
	rec.refresh()
	r.mu.Unlock()
	if tracked {
		r.notify()
	}
	return true
}

// Address returns the address that the connection leads to, the first of several.
func (c *Conn) Address() string { return c.address }

// Named returns an error of the connection, which may be nil, with the address of the endpoint: gRPC's error of a handshake has none. If
// the connection leads to one of several addresses, that is not known.
func (c *Conn) Named(err error) error {
	if err == nil || c.several || strings.Contains(err.Error(), c.address) {
		return err
	}
	return fmt.Errorf("endpoint %s: %w", c.address, err)
}

// Hostname returns the hostname of the endpoint, or "".
func (c *Conn) Hostname() string {
	if h := c.record.hostname.Load(); h != nil {
		return *h
	}
	return ""
}

// Target returns what to count an RPC by that starts now, for load reports. It is for
// clusters whose load is reported.
func (c *Conn) Target() *Target { return c.record.target.Load() }

// Session returns the Session of the endpoint, or nil.
func (c *Conn) Session() *Session {
	if c.several {
		return nil
	}
	return c.record.session.Load()
}

// Ejected reports whether the endpoint is ejected by outlier detection.
func (c *Conn) Ejected() bool { return !c.several && c.record.health.Load().Ejected() }

// Count counts an RPC on the connection for outlier detection, by how it ended.
func (c *Conn) Count(info balancer.DoneInfo) {
	if h := c.record.health.Load(); h != nil && !c.several {
		h.count(info)
	}
}

// Said notes what a report of gRPC shows of the endpoint, and returns what that says of the TLS that it wants (package tlsadvice), or "".
func (c *Conn) Said(reported balancer.SubConnState) string {
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	switch err := reported.ConnectionError; {
	case c.several || c.record == nil:
	case reported.ConnectivityState == connectivity.Ready:
		c.record.shown.Ready()
	case reported.ConnectivityState == connectivity.TransientFailure && err != nil:
		return c.record.shown.Failed(err)
	}
	return ""
}

// Report records the state that gRPC reports.
func (c *Conn) Report(reported balancer.SubConnState) {
	r, s := c.registry, reported.ConnectivityState
	var replaced []*Conn
	r.mu.Lock()
	now := time.Now()
	if c.state = s; !c.broken || s == connectivity.Ready {
		c.since = now
	}
	c.broken = s != connectivity.Ready && (c.broken || s == connectivity.TransientFailure)
	if s != connectivity.Ready {
		c.check = ""
	}
	if s == connectivity.TransientFailure && c.record != nil {
		c.record.failure, c.record.failed = reported.ConnectionError, now
	}
	if c.owner == unregistered || c.owner == released {
		r.mu.Unlock()
		return
	}
	switch {
	case s == connectivity.Shutdown:
		r.removeLocked(c)
	case s == connectivity.Ready && c.owner == policyOwned && !c.several:
		// Sessions use this connection from now on.
		replaced = r.takeSessionsOwned(c.record)
	}
	c.record.refresh()
	tracked := c.record.session.Load() != nil
	r.mu.Unlock()
	changes.Touch()
	releaseAll(replaced)
	if tracked {
		r.notify()
	}
}

// SetHealthCheck records the last answer of the health check, "" for none, for diagnostics.
func (c *Conn) SetHealthCheck(answer string) {
	c.registry.mu.Lock()
	same := c.check == answer
	c.check = answer
	c.registry.mu.Unlock()
	if !same {
		changes.Touch()
	}
}

// HealthChanged is called when the health check of the connection has begun, has another answer, or
// has ended. Sessions may have waited for that.
func (c *Conn) HealthChanged() { c.registry.notify() }

// Abandon is called when the policy has no more use for the connection. It reports
// whether the Registry keeps the connection for sessions. If not, the Registry has
// removed it, and the caller closes it.
func (c *Conn) Abandon() (kept bool) {
	r := c.registry
	r.mu.Lock()
	if c.owner == unregistered {
		c.owner = released
	}
	if c.owner != policyOwned {
		r.mu.Unlock()
		return false
	}
	if kept = r.keepsLocked(c); kept {
		c.owner = sessionsOwned
	} else {
		r.removeLocked(c)
	}
	tracked := c.record.session.Load() != nil
	r.mu.Unlock()
	if kept {
		r.kept()
	}
	if tracked {
		r.notify()
	}
	return kept
}

// keepsLocked decides as gRFC A75 does for subchannels that the child policy unrefs: c is
// kept if a session has used the endpoint within the idle timeout, if c is connected or
// connecting, and if no other connection to the endpoint is READY. One through another proxy
// than that of new connections is not kept (gRFC A86). It makes no difference whether the
// endpoint is DRAINING, or in a priority that is not in use.
func (r *Registry) keepsLocked(c *Conn) bool {
	s := c.Session()
	if r.closed || s == nil || !s.Endpoint().Allowed || c.proxy != c.record.proxy ||
		c.state != connectivity.Ready && c.state != connectivity.Connecting {
		return false
	}
	if slices.ContainsFunc(c.record.conns, func(other *Conn) bool {
		return other != c && !other.several && other.state == connectivity.Ready
	}) {
		return false
	}
	timeout := r.config.Sessions.IdleTimeout
	return s.idle(time.Now(), timeout) < timeout
}

// takeSessionsOwned removes the connections to rec that are kept for sessions, and
// returns them for the caller to release.
func (r *Registry) takeSessionsOwned(rec *Record) []*Conn {
	var removed []*Conn
	for _, c := range slices.Clone(rec.conns) {
		if c.owner == sessionsOwned {
			r.removeLocked(c)
			removed = append(removed, c)
		}
	}
	return removed
}

func releaseAll(conns []*Conn) {
	for _, c := range conns {
		c.user.Release()
	}
}
