package leaf

import (
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/tree"
)

// clientConn is the channel that gRPC's policy sees. The policy may call it from any goroutine
// and with any of its own locks held.
type clientConn struct {
	balancer.ClientConn
	env    *tree.Env
	policy *Policy
	user   conns.User

	// mu is not held during calls to anything outside.
	mu     sync.Mutex
	closed bool
	// report waits for the loop. A newer report replaces an older one: however often a policy reports, the queue has one
	// event of the policy at most.
	report *balancer.State
}

func newClientConn(env *tree.Env, p *Policy) *clientConn {
	return &clientConn{ClientConn: env.ClientConn, env: env, policy: p}
}

// UpdateState implements balancer.ClientConn.
func (c *clientConn) UpdateState(s balancer.State) {
	c.mu.Lock()
	first := c.report == nil && !c.closed
	if !c.closed {
		c.report = &s
	}
	c.mu.Unlock()
	if first {
		c.env.Loop.Post(c.policy.reported)
	}
}

// waiting returns the report that waits for the loop, or nil.
func (c *clientConn) waiting() *balancer.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.report
}

// takeReport is waiting for the loop: the report then no longer waits.
func (c *clientConn) takeReport() *balancer.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	report := c.report
	c.report = nil
	return report
}

// NewSubConn returns a SubConn that reports to the policy on the loop.
func (c *clientConn) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	sc, err := c.env.Endpoints.Open(&c.user, addrs, opts, c.policy.listener(opts.StateListener))
	if err != nil {
		return nil, err
	}
	return sc, nil
}

// RemoveSubConn is what old policies call instead of SubConn.Shutdown.
func (c *clientConn) RemoveSubConn(sc balancer.SubConn) { sc.Shutdown() }

// ResolveNow requests another look-up of the cluster's names, if it has any.
func (c *clientConn) ResolveNow(resolver.ResolveNowOptions) { c.env.Loop.Post(c.env.Resolve) }

func (c *clientConn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed, c.report = true, nil
}
