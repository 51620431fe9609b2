//lint:file-ignore SA1019 What gRPC's policies call, and how a SubConn gets credentials of its own.

package conns

import (
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/balancer/internal/later"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/clustertls"
	"github.com/dynxds/dynxds/internal/grpcbridge"
)

// Pool has the connections of one tree.
//
// When the last user of a connection has released it, it lingers, as a control plane may flap: who connects to the same
// address in the same way within that time gets the connection that is there. However often routes, clusters or
// endpoints change, an address therefore has no more connections than were in use at one time; two more if connections have
// labels for metrics (gRFC A94). As many linger as were in use at one time in the last second, or
// bounds.LingeringConnections. For one more, any other retires: the last one is the most likely to be used again.
//
// A connection that retires is shut down when the RPCs that were picked for it have ended. An RPC may be between its pick and
// its stream, however long its credentials take to make a token, or the server's MAX_CONCURRENT_STREAMS holds it back: gRPC-Go
// 1.85 would let it hang if its SubConn were shut down then while another stream keeps the connection open.
//
// Connections are made a number at a time, see starts.
type Pool struct {
	cc   balancer.ClientConn
	post func(func())

	// mu also guards Registries, Records and Conns. Only unlock unlocks mu.
	mu sync.Mutex
	// calls to gRPC are made when mu is unlocked. reports to policies are for the goroutine of post, and stay in order.
	calls, reports []func()
	posted         bool          // deliver is to run
	linger         time.Duration // 0 after Close
	// lingering has the connections that linger, and lingers is their number.
	lingering map[key][]*link
	lingers   int
	// inUse is the number of connections with a user, peak the greatest since peakAt.
	inUse, peak int
	peakAt      time.Time
	starts      starts
}

// afterLocked has a call to gRPC made after mu is unlocked.
func (p *Pool) afterLocked(call func()) { p.calls = append(p.calls, call) }

// unlock unlocks mu, and makes the calls that were noted meanwhile.
func (p *Pool) unlock() {
	calls, post := p.calls, len(p.reports) > 0 && !p.posted
	p.calls, p.posted = nil, p.posted || post
	p.mu.Unlock()
	for _, call := range calls {
		call()
	}
	if post {
		p.post(p.deliver)
	}
}

// deliver passes one report on. The tree publishes the outcome of a report before the next one, as a policy over thousands of endpoints
// takes a millisecond and more for each.
func (p *Pool) deliver() {
	p.mu.Lock()
	report := p.reports[0]
	p.reports[0] = nil
	p.reports, p.posted = p.reports[1:], false
	p.unlock()
	report()
}

// key is what connections must have in common for one to be used in place of another. It
// is the zero key for connections that are not used again.
type key struct {
	address     string
	credentials credentials.Bundle // nil: the channel's
}

// NewPool returns a Pool that opens connections on cc. After the last use they linger for the
// given time. post runs functions soon, one at a time and without waiting for them.
func NewPool(cc balancer.ClientConn, post func(func()), linger time.Duration) *Pool {
	return &Pool{cc: cc, post: post, linger: linger, lingering: make(map[key][]*link), starts: starts{waiting: make(map[string][]*Conn)}}
}

// link is one SubConn of gRPC's, which may have several users, one after the other. It is in use, then lingers, and is
// in use again or retires. What changes is guarded by Pool.mu, but for rpcs.
type link struct {
	// rpcs is the number of RPCs that were picked for it and have not ended, and retired more when it is to be shut down.
	rpcs atomic.Int64

	pool *Pool
	sc   balancer.SubConn
	// key, address and opts say how it connects.
	key     key
	address resolver.Address
	labels  grpcbridge.SubchannelLabels
	opts    balancer.NewSubConnOptions
	state   balancer.SubConnState // what gRPC last reported

	// queued says that it waits for its turn to connect. start is pending while it counts as being made.
	queued bool
	start  later.Timer
	unhold func() // gives up the credentials, unless they are the channel's

	user  *Conn       // nil: it is not in use
	leave later.Timer // pending while it lingers
}

// locked runs fn with mu held.
func (p *Pool) locked(fn func()) {
	p.mu.Lock()
	defer p.unlock()
	fn()
}

// open gives c a connection to the addresses, whose metrics have the labels. It is a lingering one
// if there is one to the same address with the same opts.CredsBundle, and with the same labels or
// instead of too many others. Its states go to c, one at a time, as gRPC's would.
func (p *Pool) open(c *Conn, addresses []resolver.Address, labels grpcbridge.SubchannelLabels, opts balancer.NewSubConnOptions) error {
	l := &link{pool: p, labels: labels, opts: opts, state: balancer.SubConnState{ConnectivityState: connectivity.Idle}, unhold: func() {}}
	if len(addresses) == 1 && (opts.CredsBundle == nil || reflect.TypeOf(opts.CredsBundle).Comparable()) {
		l.address, l.key = addresses[0], key{addresses[0].Addr, opts.CredsBundle}
		if p.reuse(c, l) {
			return nil
		}
	}
	opts.StateListener = l.changed
	if b, ok := opts.CredsBundle.(*clustertls.Bundle); ok {
		l.unhold = b.Hold() // The connection may outlive what has acquired it.
	}
	sc, err := p.cc.NewSubConn(labels.On(addresses), opts)
	if err != nil {
		l.unhold()
		return err
	}
	l.sc = sc
	p.mu.Lock()
	defer p.unlock()
	c.useLocked(l)
	return nil
}

// retired is more than a connection can have RPCs.
const retired = 1 << 62

// begin counts an RPC that was picked for the connection. It reports false if the connection has retired. It
// takes no lock.
func (l *link) begin() bool {
	if l.rpcs.Add(1) < retired {
		return true
	}
	l.done()
	return false
}

// done ends what begin has begun. It takes no lock.
func (l *link) done() {
	if l.rpcs.Add(-1) == retired {
		go l.sc.Shutdown() // gRPC may hold locks of the RPC.
	}
}

// retireLocked shuts the connection down when it has no RPC any more. It has no user, and will not get one. A Bundle that is outdated
// may end the RPCs, but not before a linger: they may have begun a moment ago.
func (l *link) retireLocked() {
	linger := l.pool.linger
	l.pool.afterLocked(func() {
		idle := l.rpcs.Add(retired) == retired
		if idle || linger <= 0 {
			l.unhold()
		} else {
			time.AfterFunc(linger, l.unhold)
		}
		if idle {
			l.sc.Shutdown()
		}
	})
}

// Linger returns how long connections linger.
func (p *Pool) Linger() time.Duration { return p.linger }

// maxOthers is how many connections linger to one address that have other labels than the next one
// wants before one of them is used nevertheless.
const maxOthers = 2

// reuse makes c the user of a lingering connection that is as wanted would be, if there is one.
func (p *Pool) reuse(c *Conn, wanted *link) bool {
	p.mu.Lock()
	defer p.unlock()
	l := p.similarLocked(wanted)
	if l == nil {
		return false
	}
	p.removeLocked(l)
	c.quiet = true
	c.useLocked(l)
	return true
}

// similarLocked returns a lingering connection that is as wanted would be, or nil. The
// labels of a connection's metrics cannot be changed, so one that has them is preferred, and they
// are reason enough for a new connection (gRFC A94). But a control plane that changes the names of
// clusters or localities all the time must not have connections pile up.
func (p *Pool) similarLocked(wanted *link) *link {
	var other *link // the oldest
	others := 0
	for _, l := range p.lingering[wanted.key] {
		// What only policies read makes no difference.
		a := wanted.address
		a.BalancerAttributes = l.address.BalancerAttributes
		if !l.address.Equal(a) || l.opts.HealthCheckEnabled != wanted.opts.HealthCheckEnabled {
			continue
		}
		if l.labels == wanted.labels {
			return l
		}
		if others++; others == 1 {
			other = l
		}
	}
	if others < maxOthers {
		return nil
	}
	return other
}

// useLocked makes c the user of a connection.
func (c *Conn) useLocked(l *link) {
	l.pool.inUse++
	l.user = c
	c.SubConn, c.link = l.sc, l
	c.registry.addLocked(c)
}

// removeLocked ends the lingering of l.
func (p *Pool) removeLocked(l *link) {
	l.leave.Stop()
	p.lingers--
	rest := slices.DeleteFunc(p.lingering[l.key], func(other *link) bool { return other == l })
	if len(rest) == 0 {
		delete(p.lingering, l.key)
	} else {
		p.lingering[l.key] = rest
	}
}

// releaseLocked ends the use of the connection by c, which gets SHUTDOWN, and nothing after that. If it is worth keeping, it
// lingers.
func (c *Conn) releaseLocked() {
	l, p := c.link, c.link.pool
	if l.user != c {
		return
	}
	l.user = nil
	c.kept.Stop()
	c.listenLocked(nil)
	c.registry.removeLocked(c)
	c.reportLocked(balancer.SubConnState{ConnectivityState: connectivity.Shutdown})
	if now := time.Now(); p.inUse >= p.peak || now.Sub(p.peakAt) > p.linger {
		p.peak, p.peakAt = p.inUse, now
	}
	p.inUse--
	if !l.alive() || p.linger <= 0 {
		l.retireLocked()
		return
	}
	for _, links := range p.lingering {
		if p.lingers < max(p.peak, bounds.LingeringConnections) {
			break
		}
		links[0].leaveLocked()
	}
	p.lingers++
	p.lingering[l.key] = append(p.lingering[l.key], l)
	l.leave.Start(p.linger, p.locked, l.leaveLocked)
}

// leaveLocked ends the lingering of l, which retires.
func (l *link) leaveLocked() {
	l.pool.removeLocked(l)
	l.retireLocked()
}

// reportLocked has a state reported to c.
func (c *Conn) reportLocked(s balancer.SubConnState) {
	p := c.link.pool
	p.reports = append(p.reports, func() { c.changed(s) })
}

// alive reports whether the connection is worth keeping.
func (l *link) alive() bool {
	s := l.state.ConnectivityState
	return s == connectivity.Ready || s == connectivity.Connecting
}

// changed is called by gRPC with a new state.
func (l *link) changed(s balancer.SubConnState) {
	p := l.pool
	p.mu.Lock()
	defer p.unlock()
	l.state = s
	switch c := l.user; {
	case c == nil && l.leave.Pending() && !l.alive():
		l.leaveLocked()
	case c == nil:
	case s.ConnectivityState == connectivity.Shutdown:
		c.releaseLocked()
	case !c.quiet:
		c.reportLocked(s)
	}
	if s.ConnectivityState != connectivity.Connecting {
		p.settledLocked(l)
	}
}

// Close ends the lingering of connections. From now on none lingers.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.unlock()
	p.linger = 0
	for _, links := range p.lingering {
		for _, l := range slices.Clone(links) {
			l.leaveLocked()
		}
	}
}
