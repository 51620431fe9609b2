package conns

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/balancer/internal/traffic"
	"github.com/dynxds/dynxds/internal/changes"
	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// User is the policy that opens connections.
type User interface {
	// Call runs a call of the policy, one at a time, unless the policy is closed.
	Call(func())
	// Forget is called when the policy has no more use for a Conn.
	Forget(*Conn)
}

// Conn is one use of a connection: to the policy that opened it, a SubConn of its own, IDLE until
// Connect. When the policy shuts it down it reports nothing more, but it stays open as long as
// sessions use it, and after that for a moment (Pool).
//
// Picks of leaves return the Conn itself; the cluster's picker calls Begin and Ender, and gives gRPC its own
// SubConn, which Unwrap returns.
type Conn struct {
	// What RPCs read comes first, in one cache line.
	balancer.SubConn // gRPC's
	link             *link
	record           *Record
	end              atomic.Pointer[end]
	// several says that the connection leads to one of several addresses, it is not known
	// which. Outlier detection and sessions ignore it.
	several bool
	address string
	// checked is a Checked.
	checked atomic.Int32

	registry *Registry
	user     User // nil: it was opened for sessions, not by a policy
	listener func(*Conn, balancer.SubConnState)
	// locality is the part of the tree that the endpoint is in. Connections for sessions are in none.
	locality atomic.Pointer[Locality]
	// found is the answer of the last call of LocalityIn, nil before the first.
	found atomic.Pointer[foundLocality]

	// quiet is set if what is behind it was open already and Connect was not called yet.
	// Guarded by Pool.mu.
	quiet bool

	// The rest is guarded by Registry.mu.

	owner owner
	proxy string // of the endpoint when the connection was opened
	state connectivity.State
	since time.Time // of state, or of the failure that attempts to connect again have not ended; zero before the first report
	// broken says that it has failed, and not been READY since.
	broken bool
	// healthListener is called with the health while the connection is READY.
	healthListener func(balancer.SubConnState)
	// registration counts the health listeners: reports to old ones are dropped.
	registration int
	// reported is what gRPC last reported to healthListener, IDLE if nothing.
	reported balancer.SubConnState
	// check is the health check, nil if there is none.
	check *healthCheck
}

// owner decides when a connection is closed.
type owner int

const (
	released      owner = iota // none: the Registry does not have it yet, or not any more
	policyOwned                // the policy that opened it
	sessionsOwned              // the Registry
)

// Open opens a connection for a policy, whose endpoints are in a locality (nil: it is not known). The listener
// gets its states, in calls of user.
func (r *Registry) Open(user User, in *Locality, addresses []resolver.Address, opts balancer.NewSubConnOptions, listener func(*Conn, balancer.SubConnState)) (*Conn, error) {
	c := &Conn{user: user, listener: listener}
	c.locality.Store(in)
	if err := r.open(c, addresses, opts); err != nil {
		return nil, err
	}
	r.add(c, policyOwned)
	return c, nil
}

// OpenForSessions connects to an address for sessions, not for a policy. The Registry decides how long
// the connection is kept.
func (r *Registry) OpenForSessions(address string) error {
	hostname, proxy := r.endpoint(address)
	c := new(Conn)
	if err := r.open(c, []resolver.Address{r.Bundle.Address(address, hostname, proxy)}, balancer.NewSubConnOptions{}); err != nil {
		return err
	}
	if !r.add(c, sessionsOwned) {
		c.release()
		return nil
	}
	c.Connect()
	return nil
}

// open adds what all connections of a cluster have in common.
func (r *Registry) open(c *Conn, addresses []resolver.Address, opts balancer.NewSubConnOptions) error {
	c.registry, c.state, c.several = r, connectivity.Idle, len(addresses) > 1
	if len(addresses) > 0 {
		c.address = addresses[0].Addr
	}
	if r.Bundle != nil {
		opts = grpcbridge.WithCredentials(opts, r.Bundle)
	}
	return r.Pool.open(c, r.Cluster, r.Bundle.Dial(addresses), c.labels(), opts)
}

// add reports false, and the caller has to release the connection, if it is for sessions and they may not use the
// address any more.
func (r *Registry) add(c *Conn, o owner) bool {
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
	if o == sessionsOwned && (r.closed || !tracked) {
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

// labels returns the labels of the connection's metrics (gRFC A94), none if they are not recorded.
func (c *Conn) labels() grpcbridge.SubchannelLabels {
	if !c.registry.Recorded {
		return grpcbridge.SubchannelLabels{}
	}
	return grpcbridge.SubchannelLabels{BackendService: c.registry.Cluster, Locality: c.place().Name(c.address)}
}

// place returns where the endpoint is, or nil.
func (c *Conn) place() *Locality {
	if l := c.locality.Load(); l != nil {
		return l
	}
	if session := c.registry.Session(c.address); session != nil {
		return NewLocality(session.Endpoint().Locality)
	}
	return nil
}

// Unwrap returns gRPC's own SubConn.
func (c *Conn) Unwrap() balancer.SubConn { return c.SubConn }

// Address returns the address that the connection leads to, the first of several.
func (c *Conn) Address() string { return c.address }

// Hostname returns the hostname of the endpoint, or "".
func (c *Conn) Hostname() string {
	if h := c.record.hostname.Load(); h != nil {
		return *h
	}
	return ""
}

// LocalityLabels returns the telemetry label of the endpoint's locality, or nil.
func (c *Conn) LocalityLabels() map[string]string { return c.place().Labels(c.address) }

// Session returns the Session of the endpoint, or nil.
func (c *Conn) Session() *Session {
	if c.several {
		return nil
	}
	return c.record.session.Load()
}

// Ejected reports whether the endpoint is ejected by outlier detection.
func (c *Conn) Ejected() bool { return !c.several && c.record.health.Load().Ejected() }

// end is what happens when an RPC on a connection ends. RPCs that are counted by the same
// things share one, so that none of them allocates.
type end struct {
	counter *traffic.Counter
	target  *Target // nil: the load is not reported
	done    func(balancer.DoneInfo)
}

// Begin starts an RPC for which the connection was picked. It reports false if that is shut down by now: another picker will
// follow. The connection stays open until the end of the RPC, which is Abort or the function of Ender.
func (c *Conn) Begin() bool { return c.link.begin() }

// Abort ends an RPC that is not sent.
func (c *Conn) Abort() { c.link.done() }

// Ender returns what gRPC is to call when an RPC ends, which Begin has started and counter has counted. If reported is true the RPC
// is counted for load reports. Its end is counted for outlier detection.
func (c *Conn) Ender(counter *traffic.Counter, reported bool) func(balancer.DoneInfo) {
	var target *Target
	if reported {
		target = c.record.target.Load()
	}
	e := c.end.Load()
	if e == nil || e.counter != counter || e.target != target {
		e = c.newEnd(counter, target)
		c.end.Store(e)
	}
	target.start()
	return e.done
}

func (c *Conn) newEnd(counter *traffic.Counter, target *Target) *end {
	return &end{counter: counter, target: target, done: func(info balancer.DoneInfo) {
		counter.End()
		target.finish(info)
		if h := c.record.health.Load(); h != nil && !c.several {
			h.count(info)
		}
		c.link.done()
	}}
}

// UpdateAddresses implements balancer.SubConn. The connection is not used again.
func (c *Conn) UpdateAddresses(addresses []resolver.Address) {
	c.link.updateAddresses(c, c.registry.Bundle.Dial(addresses))
}

// Connect implements balancer.SubConn.
func (c *Conn) Connect() { c.link.connect(c) }

// Shutdown implements balancer.SubConn.
func (c *Conn) Shutdown() {
	c.user.Forget(c)
	c.Retire()
}

// Retire ends the policy's use of the connection.
func (c *Conn) Retire() {
	r := c.registry
	r.mu.Lock()
	c.listenLocked(nil)
	if c.owner != policyOwned {
		r.mu.Unlock()
		return
	}
	kept := r.keepsLocked(c)
	if kept {
		c.owner = sessionsOwned
		c.locality.Store(nil)
	} else {
		r.removeLocked(c)
	}
	tracked := c.record.session.Load() != nil
	r.mu.Unlock()
	if kept {
		r.kept()
	} else {
		c.release()
	}
	if tracked {
		r.notify()
	}
}

// release gives the connection back, for others to reuse in the next moment.
func (c *Conn) release() { c.link.release(c) }

func releaseAll(conns []*Conn) {
	for _, c := range conns {
		c.release()
	}
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

// changed is called with the states that gRPC reports, one at a time.
func (c *Conn) changed(s balancer.SubConnState) {
	r := c.registry
	var replaced []*Conn
	r.mu.Lock()
	ready := s.ConnectivityState == connectivity.Ready
	asked := ready && r.checksHealthLocked()
	if asked {
		// No session uses it before the policy has started the check, or does not listen.
		c.checked.Store(int32(Awaited))
	}
	if !ready {
		c.listenLocked(nil)
	}
	before, tracked := c.owner, false
	if before != released {
		c.noteLocked(&s)
		switch {
		case s.ConnectivityState == connectivity.Shutdown:
			r.removeLocked(c)
		case ready && before == policyOwned && !c.several:
			// Sessions use this connection from now on.
			replaced = r.takeSessionsOwned(c.record)
		}
		c.record.refresh()
		tracked = c.record.session.Load() != nil
	}
	r.mu.Unlock()
	changes.Touch()
	releaseAll(replaced)
	if tracked {
		r.notify()
	}
	c.tell(s, before)
	if asked {
		c.settleCheck()
	}
}

// noteLocked records a state, and words its error.
func (c *Conn) noteLocked(reported *balancer.SubConnState) {
	now, s, rec := time.Now(), reported.ConnectivityState, c.record
	if c.state = s; !c.broken || s == connectivity.Ready {
		c.since = now
	}
	c.broken = s != connectivity.Ready && (c.broken || s == connectivity.TransientFailure)
	if s == connectivity.Ready && !c.several {
		rec.shown.Ready()
	}
	err := reported.ConnectionError
	if err == nil {
		return
	}
	if s == connectivity.TransientFailure && !c.several {
		err = c.registry.TLS.Advise(err, rec.shown.Failed(err), c.registry.Bundle)
	}
	if s == connectivity.TransientFailure {
		rec.failure, rec.failed = err, now
	}
	if !c.several && !strings.Contains(err.Error(), c.address) { // gRPC's error of a handshake has no address.
		err = fmt.Errorf("endpoint %s: %w", c.address, err)
	}
	reported.ConnectionError = err
}

// tell passes a state on to the policy, if that still has the connection.
func (c *Conn) tell(s balancer.SubConnState, o owner) {
	switch {
	case c.user == nil:
		return
	case s.ConnectivityState == connectivity.Shutdown:
		c.user.Forget(c)
	case o != policyOwned:
		return
	case s.ConnectivityState == connectivity.Idle, s.ConnectivityState == connectivity.TransientFailure:
		// Where gRPC's own policies have the names of the whole channel looked up, only
		// those of this cluster are (gRFC A37, "Priority Policy Reresolution Handling").
		c.registry.Resolve()
	}
	c.user.Call(func() { c.listener(c, s) })
}

// RegisterHealthListener implements balancer.SubConn. While the endpoint is ejected, the
// listener gets TRANSIENT_FAILURE (gRFC A61, "Generic Health Reporting Mechanism").
func (c *Conn) RegisterHealthListener(listener func(balancer.SubConnState)) {
	r := c.registry
	r.mu.Lock()
	n := c.listenLocked(listener)
	check := c.newCheckLocked(balancer.SubConnState{ConnectivityState: connectivity.Connecting})
	r.mu.Unlock()
	check.start()
	if listener == nil {
		c.SubConn.RegisterHealthListener(nil)
		return
	}
	c.SubConn.RegisterHealthListener(func(state balancer.SubConnState) {
		r.mu.Lock()
		current := n == c.registration
		if current {
			c.reported = state
		}
		r.mu.Unlock()
		if current {
			c.reportHealth()
		}
	})
}

// listenLocked sets the listener, nil for none.
func (c *Conn) listenLocked(listener func(balancer.SubConnState)) int {
	c.registration++
	c.healthListener, c.reported = listener, balancer.SubConnState{}
	c.stopCheckLocked()
	return c.registration
}

// reportHealth calls the listener with what gRPC last reported, with the result of the health check,
// or with the ejection.
func (c *Conn) reportHealth() {
	if c.user == nil {
		return
	}
	c.user.Call(func() {
		c.registry.mu.Lock()
		listener, state := c.healthListener, c.reported
		if c.check != nil && state.ConnectivityState == connectivity.Ready {
			state = c.check.latest
		}
		c.registry.mu.Unlock()
		if listener == nil || state.ConnectivityState == connectivity.Idle {
			return
		}
		if c.Ejected() {
			state = balancer.SubConnState{ConnectivityState: connectivity.TransientFailure, ConnectionError: errEjected}
		}
		listener(state)
	})
}

var errEjected = errors.New("the endpoint is ejected: it failed more RPCs than outlier_detection allows")
