package leaf

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"
)

// What follows makes a Policy the channel that gRPC's policy sees. That may call it from any goroutine and with any of its own locks held.

// UpdateState implements balancer.ClientConn.
func (p *Policy) UpdateState(s balancer.State) {
	if p.report.Swap(&s) == nil {
		p.env.Loop.Post(p.reported)
	}
}

// NewSubConn returns a SubConn that reports to the policy on the loop.
func (p *Policy) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	sc, err := p.env.Endpoints.Open(&p.user, addrs, opts, p.listener(opts.StateListener))
	if err != nil {
		return nil, err
	}
	return sc, nil
}

// RemoveSubConn is what old policies call instead of SubConn.Shutdown.
func (p *Policy) RemoveSubConn(sc balancer.SubConn) { sc.Shutdown() }

// ResolveNow requests another look-up of the cluster's names, if it has any.
func (p *Policy) ResolveNow(resolver.ResolveNowOptions) { p.env.Loop.Post(p.env.Resolve) }
