package leaf

import (
	"errors"
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/balancer/internal/tree"
)

var errClosed = errors.New("dynxds: the load-balancing policy is closed")

// clientConn is what gRPC's policy sees as its channel. The policy may call it
// from any goroutine and with any of its locks held.
type clientConn struct {
	balancer.ClientConn
	env    *tree.Env
	policy *Policy

	// mu is held for no call to anything outside this type.
	mu       sync.Mutex
	closed   bool
	reports  reports
	count    int
	latest   balancer.State
	subConns map[*SubConn]struct{}
}

// reports says whether the latest report still waits for the loop. While one
// does, a newer report takes its place: however often a policy reports, there
// is at most one event of it in the queue.
type reports int

const (
	taken reports = iota
	waiting
)

func newClientConn(env *tree.Env, p *Policy) *clientConn {
	return &clientConn{
		ClientConn: env.ClientConn,
		env:        env,
		policy:     p,
		subConns:   make(map[*SubConn]struct{}),
	}
}

// UpdateState is the policy's report.
func (c *clientConn) UpdateState(s balancer.State) {
	if c.keep(s) {
		c.env.Loop.Post(c.policy.reported)
	}
}

// keep stores a report and says whether the loop must be told.
func (c *clientConn) keep(s balancer.State) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	before := c.reports
	c.latest, c.reports = s, waiting
	c.count++
	return before == taken
}

// reportCount is the number of reports so far.
func (c *clientConn) reportCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// latestReport returns the report that waits for the loop, if one does.
func (c *clientConn) latestReport() (balancer.State, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest, !c.closed && c.reports == waiting
}

// takeReport returns the report that waits for the loop, if one does. It waits
// no longer.
func (c *clientConn) takeReport() (balancer.State, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.reports == taken {
		return balancer.State{}, false
	}
	s := c.latest
	c.latest, c.reports = balancer.State{}, taken
	return s, true
}

// NewSubConn makes a SubConn that reports to the policy one call at a time.
func (c *clientConn) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	sc := &SubConn{env: c.env, conn: c}
	listener := opts.StateListener
	opts.StateListener = func(s balancer.SubConnState) {
		sc.endpoint.Report(s.ConnectivityState)
		if s.ConnectivityState != connectivity.Ready {
			sc.listen(nil)
		}
		if s.ConnectivityState == connectivity.Shutdown {
			c.forget(sc)
		} else if !c.knows(sc) {
			return
		}
		if s.ConnectivityState == connectivity.Idle || s.ConnectivityState == connectivity.TransientFailure {
			// gRPC asks the whole channel's resolver at such times. Here only the
			// cluster's own trouble has its names looked up (gRFC A37, "Priority
			// Policy Reresolution Handling").
			c.env.Resolve()
		}
		c.policy.subConnChanged(sc, s, listener)
	}
	if err := sc.open(addrs, opts); err != nil {
		return nil, err
	}
	if !c.remember(sc) {
		sc.Release()
		return nil, errClosed
	}
	sc.endpoint.Add()
	return sc, nil
}

// RemoveSubConn is what old policies call in place of SubConn.Shutdown.
func (c *clientConn) RemoveSubConn(sc balancer.SubConn) { sc.Shutdown() }

// ResolveNow has the names of the cluster looked up again. Where the control
// plane pushes endpoints there are none.
func (c *clientConn) ResolveNow(resolver.ResolveNowOptions) { c.env.Resolve() }

// remember is false once the leaf is closed.
func (c *clientConn) remember(sc *SubConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.subConns[sc] = struct{}{}
	}
	return !c.closed
}

// knows reports whether the policy has a SubConn and did not shut it down.
func (c *clientConn) knows(sc *SubConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.subConns[sc]
	return ok
}

// forget reports whether the SubConn was still remembered.
func (c *clientConn) forget(sc *SubConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.subConns[sc]
	delete(c.subConns, sc)
	return ok
}

func (c *clientConn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.latest = balancer.State{}
}

// shutdownSubConns ends the SubConns that the policy left behind: gRPC does
// not ask policies to shut them down in Close.
func (c *clientConn) shutdownSubConns() {
	c.mu.Lock()
	left := c.subConns
	c.subConns = make(map[*SubConn]struct{})
	c.mu.Unlock()
	for sc := range left {
		sc.retire()
	}
}
