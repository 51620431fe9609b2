package conns

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/balancer/internal/later"
	"github.com/dynxds/dynxds/balancer/internal/traffic"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/tlsadvice"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// User is a policy that opens connections. The zero value is one without connections.
type User struct {
	// open are the connections that the policy has not shut down. Pool.mu guards open and closed.
	open   map[*Conn]struct{}
	closed bool
}

var errClosed = errors.New("dynxds: the load-balancing policy is closed")

// CloseUser shuts down the connections that a policy has left open, and refuses new ones: gRPC does not require policies to close
// their connections.
func (r *Registry) CloseUser(user *User) {
	r.Pool.mu.Lock()
	left := user.open
	user.open, user.closed = nil, true
	r.Pool.unlock()
	for c := range left {
		c.Shutdown()
	}
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
	// state is what gRPC last reported, and health what the health check has. READY: there is none. Written with Pool.mu held.
	state, health atomic.Int32

	registry *Registry
	listener func(*Conn, balancer.SubConnState) // of the policy; nil: it was opened for sessions

	// The rest is guarded by Pool.mu.

	// quiet is set if what is behind it was open already and Connect was not called yet.
	quiet bool
	user  *User       // the policy that decides when it is released; nil: reviewLocked does, as it is for sessions
	kept  later.Timer // pending until the next review, if it is for sessions
	proxy string      // of the endpoint when the connection was opened
	since time.Time   // of state, or of the failure that attempts to connect again have not ended; zero before the first report
	// broken says that it has failed, and not been READY since.
	broken bool
	// healthListener is called with the health while the connection is READY.
	healthListener func(balancer.SubConnState)
	// check is the health check, nil if there is none.
	check *healthCheck
}

// Open opens a connection for a policy. The listener gets its states until Shutdown, and SHUTDOWN after it.
func (r *Registry) Open(user *User, addresses []resolver.Address, opts balancer.NewSubConnOptions, listener func(*Conn, balancer.SubConnState)) (*Conn, error) {
	c := &Conn{user: user, listener: listener}
	if err := r.open(c, addresses, opts); err != nil {
		return nil, err
	}
	r.Pool.mu.Lock()
	closed := user.closed
	if user.open == nil {
		user.open = make(map[*Conn]struct{})
	}
	user.open[c] = struct{}{}
	r.Pool.unlock()
	if closed {
		c.Shutdown()
		return nil, errClosed
	}
	return c, nil
}

// open adds what all connections of a cluster have in common.
func (r *Registry) open(c *Conn, addresses []resolver.Address, opts balancer.NewSubConnOptions) error {
	c.registry, c.several = r, len(addresses) > 1
	c.state.Store(int32(connectivity.Idle))
	c.health.Store(int32(connectivity.Ready))
	if len(addresses) > 0 {
		c.address = addresses[0].Addr
	}
	if r.Bundle != nil {
		opts = grpcbridge.WithCredentials(opts, r.Bundle)
	}
	if err := r.Pool.open(c, r.Bundle.Dial(addresses), r.labels(c.address), opts); err != nil {
		return err
	}
	r.notify()
	return nil
}

// labels returns the labels of the metrics of a connection to an address (gRFC A94), none if they are not recorded.
func (r *Registry) labels(address string) grpcbridge.SubchannelLabels {
	if !r.Recorded {
		return grpcbridge.SubchannelLabels{}
	}
	labels := grpcbridge.SubchannelLabels{BackendService: r.Cluster}
	if rec := r.record(address); rec != nil && rec.at.Load().locality != nil {
		labels.Locality = LocalityName(rec.at.Load().locality.ID)
	}
	return labels
}

// Unwrap returns gRPC's own SubConn.
func (c *Conn) Unwrap() balancer.SubConn { return c.SubConn }

// Address returns the address that the connection leads to, the first of several.
func (c *Conn) Address() string { return c.address }

// Hostname returns the hostname of the endpoint, or "".
func (c *Conn) Hostname() string { return c.record.endpoint.Load().Hostname }

// Locality returns where the endpoint is, or was before it was removed; nil if the address never was an endpoint's.
func (c *Conn) Locality() *xdsresource.Locality { return c.record.at.Load().locality }

// LocalityName returns a locality as telemetry names it (gRFC A78, "Optional xDS Locality Label").
func LocalityName(id xdsresource.LocalityID) string {
	return fmt.Sprintf("{region=%q, zone=%q, sub_zone=%q}", id.Region, id.Zone, id.SubZone)
}

// LocalityLabels returns the telemetry label of the endpoint's locality, or nil. The caller must not change it.
func (c *Conn) LocalityLabels() map[string]string {
	at := c.record.at.Load()
	at.once.Do(at.label)
	return at.labels
}

// Session returns the Record of the endpoint, nil if sessions cannot use the connection.
func (c *Conn) Session() *Record {
	if c.several || !c.record.configured() {
		return nil
	}
	return c.record
}

// connectivity returns the state of the connection.
func (c *Conn) connectivity() connectivity.State { return connectivity.State(c.state.Load()) }

// State returns the state of the connection for sessions, which do not use the health that is reported to the policy. It is
// TRANSIENT_FAILURE while the endpoint is ejected or its health check fails (gRFC A50), and CONNECTING until the first answer (gRFC A17).
func (c *Conn) State() connectivity.State {
	s := c.connectivity()
	if s != connectivity.Ready {
		return s
	}
	if c.Ejected() {
		return connectivity.TransientFailure
	}
	return connectivity.State(c.health.Load())
}

// Ejected reports whether the endpoint is ejected by outlier detection.
func (c *Conn) Ejected() bool { return !c.several && c.record.health.Load().Ejected() }

// end is what happens when an RPC on a connection ends. RPCs that are counted by the same
// things share one, so that none of them allocates.
type end struct {
	counter *traffic.Counter
	load    *load.Locality // nil: the load is not reported
	done    func(balancer.DoneInfo)
}

// Begin starts an RPC for which the connection was picked. It reports false if that is shut down by now: another picker will
// follow. The connection stays open until the end of the RPC, which is Abort or the function of Ender.
func (c *Conn) Begin() bool { return c.link.begin() }

// Abort ends an RPC that is not sent.
func (c *Conn) Abort() { c.link.done() }

// Ender returns what gRPC is to call when an RPC ends, which Begin has started and counter has counted. The RPC is counted
// for load reports, and its end for outlier detection.
func (c *Conn) Ender(counter *traffic.Counter) func(balancer.DoneInfo) {
	l, e := c.record.at.Load().load, c.end.Load()
	if e == nil || e.counter != counter || e.load != l {
		e = &end{counter: counter, load: l, done: func(info balancer.DoneInfo) {
			counter.End()
			l.End(info)
			if h := c.record.health.Load(); h != nil && !c.several {
				h.ended(info)
			}
			c.link.done()
		}}
		c.end.Store(e)
	}
	l.Start()
	return e.done
}

// UpdateAddresses implements balancer.SubConn. The connection is not used again.
func (c *Conn) UpdateAddresses(addresses []resolver.Address) {
	l, p := c.link, c.link.pool
	p.mu.Lock()
	current := l.user == c
	if current {
		l.key = key{}
	}
	p.unlock()
	if current {
		//lint:ignore SA1019 gRPC's policies call it
		l.sc.UpdateAddresses(l.labels.On(c.registry.Bundle.Dial(addresses)))
	}
}

// Connect implements balancer.SubConn. If c has got a connection that lingered, the policy gets the connection's current state.
func (c *Conn) Connect() {
	l, p := c.link, c.link.pool
	p.mu.Lock()
	defer p.unlock()
	if l.user != c {
		return
	}
	quiet := c.quiet
	c.quiet = false
	switch state := l.state.ConnectivityState; {
	case !quiet || state == connectivity.Idle:
		if state != connectivity.Idle || p.mayStartLocked(c) {
			p.afterLocked(l.sc.Connect)
		}
	case state == connectivity.Connecting:
		c.reportLocked(l.state)
	default:
		c.reportLocked(balancer.SubConnState{ConnectivityState: connectivity.Connecting})
		c.reportLocked(l.state)
	}
}

// Shutdown implements balancer.SubConn: it ends the policy's use of the connection. Sessions may keep one that is connected or connecting.
func (c *Conn) Shutdown() {
	r := c.registry
	r.Pool.mu.Lock()
	c.listenLocked(nil)
	if user := c.user; user != nil {
		delete(user.open, c)
		c.user = nil
		if s := c.connectivity(); s == connectivity.Ready || s == connectivity.Connecting {
			c.record.reviewLocked()
		} else {
			c.releaseLocked()
		}
	}
	r.Pool.unlock()
	r.notify()
}

// changed is called with the states that gRPC reports, and with SHUTDOWN in the end, one at a time, on the goroutine of Pool.post.
func (c *Conn) changed(s balancer.SubConnState) {
	r := c.registry
	told, asked := c.listener != nil, false
	r.Pool.mu.Lock()
	if s.ConnectivityState != connectivity.Shutdown {
		if c.link.user != c {
			r.Pool.unlock()
			return
		}
		told = told && c.user != nil
		asked = c.noteLocked(&s)
	}
	r.Pool.unlock()
	r.notify()
	if told {
		c.tell(s)
	}
	if asked {
		c.settleCheck()
	}
}

// noteLocked records a state, and words its error. It reports whether the policy is about to ask for the health.
func (c *Conn) noteLocked(reported *balancer.SubConnState) (asked bool) {
	now, s, rec := time.Now(), reported.ConnectivityState, c.record
	if asked = s == connectivity.Ready && c.registry.checksHealthLocked(); asked {
		// No session uses it before the policy has started the check, or does not listen.
		c.health.Store(int32(connectivity.Connecting))
	}
	c.state.Store(int32(s))
	if s != connectivity.Ready {
		c.listenLocked(nil)
	}
	if !c.broken || s == connectivity.Ready {
		c.since = now
	}
	c.broken = s != connectivity.Ready && (c.broken || s == connectivity.TransientFailure)
	if s == connectivity.Ready && !c.several {
		rec.shown.Ready()
		if c.user != nil {
			rec.reviewLocked() // Sessions use this connection from now on.
		}
	}
	rec.refresh()
	if reported.ConnectionError == nil {
		return asked
	}
	err := errors.New(tlsadvice.Reason(reported.ConnectionError.Error()))
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
	return asked
}

// tell passes a state on to the policy.
func (c *Conn) tell(s balancer.SubConnState) {
	switch s.ConnectivityState {
	case connectivity.Idle, connectivity.TransientFailure:
		// Where gRPC's own policies have the names of the whole channel looked up, only
		// those of this cluster are (gRFC A37, "Priority Policy Reresolution Handling").
		c.registry.Resolve()
	}
	c.listener(c, s)
}

// RegisterHealthListener implements balancer.SubConn. While the endpoint is ejected, the
// listener gets TRANSIENT_FAILURE (gRFC A61, "Generic Health Reporting Mechanism"). gRPC itself has nothing to say: the service config of
// the channel asks for no health checks.
func (c *Conn) RegisterHealthListener(listener func(balancer.SubConnState)) {
	p := c.registry.Pool
	p.mu.Lock()
	defer p.unlock()
	if c.user == nil || c.connectivity() != connectivity.Ready {
		listener = nil // The policy has ended its use, or is about to hear of the other state.
	}
	c.listenLocked(listener)
	c.checkLocked(balancer.SubConnState{ConnectivityState: connectivity.Connecting})
	c.reportHealthLocked()
}

// listenLocked sets the listener, nil for none.
func (c *Conn) listenLocked(listener func(balancer.SubConnState)) {
	c.healthListener = listener
	c.stopCheckLocked()
}

// reportHealthLocked has tellHealth called after the lock is released.
func (c *Conn) reportHealthLocked() {
	if c.healthListener != nil {
		p := c.registry.Pool
		p.reports = append(p.reports, c.tellHealth)
	}
}

// tellHealth calls the listener with READY, with the result of the health check, or with the ejection.
func (c *Conn) tellHealth() {
	p := c.registry.Pool
	p.mu.Lock()
	listener, state := c.healthListener, balancer.SubConnState{ConnectivityState: connectivity.Ready}
	if c.check != nil {
		state = c.check.latest
	}
	p.unlock()
	if listener == nil {
		return
	}
	if c.Ejected() {
		state = balancer.SubConnState{ConnectivityState: connectivity.TransientFailure, ConnectionError: errEjected}
	}
	listener(state)
}

var errEjected = errors.New("the endpoint is ejected: it failed more RPCs than outlier_detection allows")
