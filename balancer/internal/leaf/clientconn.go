package leaf

import (
	"sync/atomic"

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
	// report waits for the loop, or is nil. A newer report replaces an older one: however often a policy reports, the queue
	// has one event of the policy at most.
	report atomic.Pointer[balancer.State]
}

func newClientConn(env *tree.Env, p *Policy) *clientConn {
	return &clientConn{ClientConn: env.ClientConn, env: env, policy: p}
}

// UpdateState implements balancer.ClientConn.
func (c *clientConn) UpdateState(s balancer.State) {
	if c.report.Swap(&s) == nil {
		c.env.Loop.Post(c.policy.reported)
	}
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
