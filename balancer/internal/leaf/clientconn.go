package leaf

import (
	"errors"
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/tree"
)

var errClosed = errors.New("dynxds: the load-balancing policy is closed")

// clientConn is the channel that gRPC's policy sees. The policy may call it from any goroutine
// and with any of its own locks held.
type clientConn struct {
	balancer.ClientConn
	env    *tree.Env
	policy *Policy

	// mu is not held during calls to anything outside.
	mu       sync.Mutex
	closed   bool
	subConns map[*conns.Conn]struct{}
	// latest is the latest of count reports. While it is waiting for the loop, a newer one
	// replaces it: however often a policy reports, the queue has one event of it at most.
	latest  balancer.State
	count   int
	waiting bool
}

func newClientConn(env *tree.Env, p *Policy) *clientConn {
	return &clientConn{
		ClientConn: env.ClientConn,
		env:        env,
		policy:     p,
		subConns:   make(map[*conns.Conn]struct{}),
	}
}

// UpdateState implements balancer.ClientConn.
func (c *clientConn) UpdateState(s balancer.State) {
	if c.keepReport(s) {
		c.env.Loop.Post(c.policy.reported)
	}
}

// keepReport stores a report. It returns true if the loop does not know yet that there is one.
func (c *clientConn) keepReport(s balancer.State) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	first := !c.waiting
	c.latest, c.waiting = s, true
	c.count++
	return first
}

// reportCount returns the number of reports so far.
func (c *clientConn) reportCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// latestReport returns the report that waits for the loop, if any.
func (c *clientConn) latestReport() (balancer.State, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest, !c.closed && c.waiting
}

// takeReport returns the report that waits for the loop, if any, which then no longer waits.
func (c *clientConn) takeReport() (balancer.State, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.latest, !c.closed && c.waiting
	c.latest, c.waiting = balancer.State{}, false
	return s, ok
}

// NewSubConn returns a SubConn that reports to the policy one call at a time.
func (c *clientConn) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	sc, err := c.env.Endpoints.Open(c, c.env.Locality, addrs, opts, c.policy.listener(opts.StateListener))
	if err != nil {
		return nil, err
	}
	if !c.remember(sc) {
		sc.Retire()
		return nil, errClosed
	}
	return sc, nil
}

// RemoveSubConn is what old policies call instead of SubConn.Shutdown.
func (c *clientConn) RemoveSubConn(sc balancer.SubConn) { sc.Shutdown() }

// ResolveNow requests another look-up of the cluster's names, if it has any.
func (c *clientConn) ResolveNow(resolver.ResolveNowOptions) { c.env.Resolve() }

// remember returns false if the leaf is closed.
func (c *clientConn) remember(sc *conns.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.subConns[sc] = struct{}{}
	}
	return !c.closed
}

// Forget implements conns.User.
func (c *clientConn) Forget(sc *conns.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.subConns, sc)
}

// Call implements conns.User.
func (c *clientConn) Call(f func()) {
	c.policy.calls.Lock()
	defer c.policy.calls.Unlock()
	if c.policy.policy != nil {
		f()
	}
}

func (c *clientConn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.latest = balancer.State{}
}

// shutdownSubConns shuts down the SubConns that the policy has left: gRPC does not require
// policies to do that in Close.
func (c *clientConn) shutdownSubConns() {
	c.mu.Lock()
	left := c.subConns
	c.subConns = make(map[*conns.Conn]struct{})
	c.mu.Unlock()
	for sc := range left {
		sc.Retire()
	}
}
