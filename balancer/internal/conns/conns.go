//lint:file-ignore SA1019 What gRPC's policies call, and how a SubConn gets credentials of its own.

// Package conns opens the connections (gRPC's SubConns) of one balancer tree, and
// keeps those that were given up open for a moment.
//
// There are two reasons to keep them. An RPC may be between its pick and its stream
// (gRPC-Go 1.85: it hangs if its SubConn is shut down in that moment while another
// stream keeps the connection open). And a control plane may flap: a policy that
// connects to the same address in the same way within that time takes up the
// connection that is there. However often routes, clusters or endpoints change, an
// address has no more connections than were in use at one time.
//
// The package knows no policy, and does not know what a connection is for: package
// leaf does. A Pool may be used from any goroutine. Its lock is held for no call to
// anything outside.
package conns

import (
	"reflect"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
)

// Pool has the connections of one tree.
type Pool struct {
	cc     balancer.ClientConn
	post   func(func())
	linger time.Duration

	mu     sync.Mutex
	closed bool
	// lingering has the connections that were given up, by address; queue has them
	// in the order of their ends, and some that were taken up again since.
	lingering map[string][]*link
	queue     []ending
	timer     *time.Timer // runs while queue is not empty
}

// ending is when a connection is shut down, unless it is taken up again before.
type ending struct {
	link *link
	use  int
	at   time.Time
}

// New returns a Pool that opens connections on cc, and keeps those that are given
// up for as long as linger says. post runs a function soon, not waiting for it.
func New(cc balancer.ClientConn, post func(func()), linger time.Duration) *Pool {
	return &Pool{cc: cc, post: post, linger: linger, lingering: make(map[string][]*link)}
}

// link is one SubConn of gRPC's. It outlives its uses. Guarded by Pool.mu.
type link struct {
	pool *Pool
	sc   balancer.SubConn
	// address and opts say how it connects. There is no address if it cannot be
	// taken up again.
	address resolver.Address
	opts    balancer.NewSubConnOptions
	state   balancer.SubConnState // what gRPC last reported

	user *Conn // nil: it lingers, or is shut down
	uses int   // numbers the users
	// reports are on their way to users; telling says that somebody delivers them.
	reports []report
	telling bool
}

type report struct {
	to    *Conn
	state balancer.SubConnState
}

// Conn is one use of a connection: to the policy that made it, a SubConn of its own,
// IDLE until Connect.
type Conn struct {
	balancer.SubConn // gRPC's

	link     *link
	listener func(balancer.SubConnState)
	// quiet: the connection was there already, and Connect was not called yet.
	// Guarded by Pool.mu.
	quiet bool
}

// Open returns a connection to the addresses, a lingering one if one fits. Its
// states go to opts.StateListener, one at a time, as gRPC's would.
func (p *Pool) Open(addresses []resolver.Address, opts balancer.NewSubConnOptions) (*Conn, error) {
	c := &Conn{listener: opts.StateListener}
	opts.StateListener = nil
	if p.takeUp(c, addresses, opts) {
		return c, nil
	}
	l := &link{pool: p, opts: opts, user: c, state: balancer.SubConnState{ConnectivityState: connectivity.Idle}}
	if len(addresses) == 1 {
		l.address = addresses[0]
	}
	opts.StateListener = l.changed
	sc, err := p.cc.NewSubConn(addresses, opts)
	if err != nil {
		return nil, err
	}
	l.sc = sc
	c.SubConn, c.link = sc, l
	return c, nil
}

// takeUp makes c the user of a lingering connection.
func (p *Pool) takeUp(c *Conn, addresses []resolver.Address, opts balancer.NewSubConnOptions) bool {
	if len(addresses) != 1 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lingering[addresses[0].Addr] {
		if l.fits(addresses[0], opts) {
			p.removeLocked(l)
			l.uses++
			l.user = c
			c.SubConn, c.link, c.quiet = l.sc, l, true
			return true
		}
	}
	return false
}

// fits reports whether the connection is as one would be that is made now. What only
// policies read (BalancerAttributes) makes no difference.
func (l *link) fits(a resolver.Address, opts balancer.NewSubConnOptions) bool {
	a.BalancerAttributes = l.address.BalancerAttributes
	return l.address.Equal(a) && sameOptions(l.opts, opts)
}

func sameOptions(a, b balancer.NewSubConnOptions) bool {
	if a.HealthCheckEnabled != b.HealthCheckEnabled {
		return false
	}
	if a.CredsBundle == nil || b.CredsBundle == nil {
		return a.CredsBundle == nil && b.CredsBundle == nil
	}
	return reflect.TypeOf(a.CredsBundle).Comparable() && a.CredsBundle == b.CredsBundle
}

func (p *Pool) removeLocked(l *link) {
	address := l.address.Addr
	rest := slices.DeleteFunc(p.lingering[address], func(other *link) bool { return other == l })
	if len(rest) == 0 {
		delete(p.lingering, address)
	} else {
		p.lingering[address] = rest
	}
}

// Connect implements balancer.SubConn. Of a connection that was there already, the
// user hears how far that is.
func (c *Conn) Connect() {
	l := c.link
	l.pool.mu.Lock()
	if l.user != c {
		l.pool.mu.Unlock()
		return
	}
	quiet := c.quiet
	c.quiet = false
	if quiet && l.state.ConnectivityState != connectivity.Idle {
		if l.state.ConnectivityState != connectivity.Connecting {
			l.reports = append(l.reports, report{c, balancer.SubConnState{ConnectivityState: connectivity.Connecting}})
		}
		l.reports = append(l.reports, report{c, l.state})
		l.pool.mu.Unlock()
		l.pool.post(l.tell)
		return
	}
	l.pool.mu.Unlock()
	c.SubConn.Connect()
}

// UpdateAddresses implements balancer.SubConn. The connection is not taken up again.
func (c *Conn) UpdateAddresses(addresses []resolver.Address) {
	c.link.pool.mu.Lock()
	current := c.link.user == c
	if current {
		c.link.address = resolver.Address{}
	}
	c.link.pool.mu.Unlock()
	if current {
		c.SubConn.UpdateAddresses(addresses)
	}
}

// Shutdown implements balancer.SubConn: the user has no more to do with the
// connection. It hears that it is SHUTDOWN, and nothing after that.
func (c *Conn) Shutdown() {
	l, p := c.link, c.link.pool
	p.mu.Lock()
	if l.user != c {
		p.mu.Unlock()
		return
	}
	l.user = nil
	l.reports = append(l.reports, report{c, balancer.SubConnState{ConnectivityState: connectivity.Shutdown}})
	lingers := !p.closed && p.linger > 0 && l.alive()
	if lingers {
		p.keepLocked(l)
	}
	p.mu.Unlock()
	if !lingers {
		c.SubConn.Shutdown()
	}
	p.post(l.tell)
}

// alive reports whether there is a connection to keep.
func (l *link) alive() bool {
	s := l.state.ConnectivityState
	return s == connectivity.Ready || s == connectivity.Connecting
}

func (p *Pool) keepLocked(l *link) {
	p.lingering[l.address.Addr] = append(p.lingering[l.address.Addr], l)
	p.queue = append(p.queue, ending{l, l.uses, time.Now().Add(p.linger)})
	if p.timer == nil {
		p.timer = time.AfterFunc(p.linger, p.sweep)
	}
}

// sweep shuts down what has lingered long enough.
func (p *Pool) sweep() {
	var over []*link
	now := time.Now()
	p.mu.Lock()
	for len(p.queue) > 0 && !p.queue[0].at.After(now) {
		if e := p.queue[0]; e.link.user == nil && e.link.uses == e.use && p.isLingeringLocked(e.link) {
			p.removeLocked(e.link)
			over = append(over, e.link)
		}
		p.queue[0] = ending{}
		p.queue = p.queue[1:]
	}
	p.timer = nil
	if len(p.queue) > 0 && !p.closed {
		p.timer = time.AfterFunc(p.queue[0].at.Sub(now), p.sweep)
	}
	p.mu.Unlock()
	for _, l := range over {
		l.sc.Shutdown()
	}
}

func (p *Pool) isLingeringLocked(l *link) bool {
	return slices.Contains(p.lingering[l.address.Addr], l)
}

// changed is gRPC's report.
func (l *link) changed(s balancer.SubConnState) {
	p := l.pool
	p.mu.Lock()
	l.state = s
	lost := l.user == nil && !l.alive() && p.isLingeringLocked(l)
	if lost {
		p.removeLocked(l)
	}
	if l.user != nil && !l.user.quiet {
		l.reports = append(l.reports, report{l.user, s})
	}
	p.mu.Unlock()
	if lost {
		l.sc.Shutdown()
	}
	l.tell()
}

// tell delivers what there is to deliver, in order.
func (l *link) tell() {
	p := l.pool
	p.mu.Lock()
	if l.telling {
		p.mu.Unlock()
		return
	}
	l.telling = true
	for len(l.reports) > 0 {
		r := l.reports[0]
		l.reports = l.reports[1:]
		if r.to.listener == nil || l.user != r.to && r.state.ConnectivityState != connectivity.Shutdown {
			continue
		}
		p.mu.Unlock()
		r.to.listener(r.state)
		p.mu.Lock()
	}
	l.telling, l.reports = false, nil
	p.mu.Unlock()
}

// Close shuts down what lingers. From now on nothing does.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	lingering := p.lingering
	p.lingering, p.queue = make(map[string][]*link), nil
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	p.mu.Unlock()
	for _, links := range lingering {
		for _, l := range links {
			l.sc.Shutdown()
		}
	}
}
