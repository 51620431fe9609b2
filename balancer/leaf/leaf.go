// Package leaf runs one of gRPC's own policies (round_robin and the like, by
// name, from gRPC's public registry) as a leaf of the tree.
//
// It turns the endpoints of one locality, as xdsresource has them, into what
// such a policy takes, and the policy's reports into events on the tree's
// loop. It chooses no endpoint itself, and knows nothing of localities,
// priorities or clusters.
package leaf

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/balancer"
	_ "google.golang.org/grpc/balancer/roundrobin" // registers what lb_policy ROUND_ROBIN asks for
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/xdsresource"
)

// Policy is one leaf. Its methods are called on the tree's loop.
type Policy struct {
	changed   func()
	conn      *clientConn
	config    serviceconfig.LoadBalancingConfig
	endpoints []xdsresource.Endpoint
	state     balancer.State

	// calls keeps calls into gRPC's policy apart: a policy may count on
	// being called by one goroutine at a time, and SubConns report from gRPC's
	// goroutine, not from the loop. Under it the policy may call back into
	// conn, which therefore never takes it except to deliver a SubConn's
	// report.
	calls  sync.Mutex
	policy balancer.Balancer // nil if it could not be built, or is closed
}

// New returns a leaf that runs the policy of the given name, in the state
// CONNECTING until the policy reports. A name that is not registered, or that
// needs a configuration, gives a leaf that fails and says so.
func New(env *tree.Env, name string, changed func()) *Policy {
	p := &Policy{changed: changed, state: tree.Waiting(connectivity.Connecting)}
	p.conn = newClientConn(env, p)
	builder := balancer.Get(name)
	if builder == nil {
		p.state = tree.Failing(fmt.Errorf("load-balancing policy %q is not registered with gRPC", name))
		return p
	}
	if parser, ok := builder.(balancer.ConfigParser); ok {
		config, err := parser.ParseConfig(json.RawMessage("{}"))
		if err != nil {
			p.state = tree.Failing(fmt.Errorf("load-balancing policy %q without a configuration: %v", name, err))
			return p
		}
		p.config = config
	}
	p.calls.Lock()
	defer p.calls.Unlock()
	p.policy = builder.Build(p.conn, env.Options)
	return p
}

// Update gives the policy the endpoints to balance over. Those that are not
// usable (gRFC A27: neither HEALTHY nor UNKNOWN) are kept from it. The same
// endpoints as before cost a comparison and nothing else.
func (p *Policy) Update(endpoints []xdsresource.Endpoint) {
	if slices.Equal(endpoints, p.endpoints) {
		return
	}
	p.endpoints = endpoints
	p.calls.Lock()
	defer p.calls.Unlock()
	if p.policy == nil {
		return
	}
	reports := p.conn.reportCount()
	err := p.policy.UpdateClientConnState(balancer.ClientConnState{
		ResolverState:  resolver.State{Endpoints: resolverEndpoints(endpoints)},
		BalancerConfig: p.config,
	})
	if err != nil && p.conn.reportCount() == reports {
		// A policy that reports as well has taken what it could.
		p.conn.UpdateState(tree.Failing(fmt.Errorf("load-balancing policy refused its endpoints: %v", err)))
	}
}

// State implements tree.Policy.
func (p *Policy) State() balancer.State { return p.state }

// ExitIdle implements tree.Policy.
func (p *Policy) ExitIdle() {
	p.calls.Lock()
	defer p.calls.Unlock()
	if p.policy != nil {
		p.policy.ExitIdle()
	}
}

// Close implements tree.Policy. RPCs on the policy's connections go on to
// their end.
func (p *Policy) Close() {
	p.conn.close()
	p.calls.Lock()
	if p.policy != nil {
		p.policy.Close()
		p.policy = nil
	}
	p.calls.Unlock()
	p.conn.shutdownSubConns()
}

// reported takes over the latest report of the policy, on the loop.
func (p *Policy) reported() {
	state, ok := p.conn.latestReport()
	if !ok {
		return
	}
	p.state = state
	p.changed()
	if state.ConnectivityState == connectivity.Idle {
		// Only a pick would wake an idle policy, and the localities above do not
		// pick an idle one while another is ready.
		p.ExitIdle()
	}
}

// subConnChanged delivers the report of one SubConn.
func (p *Policy) subConnChanged(sc *SubConn, s balancer.SubConnState, listener func(balancer.SubConnState)) {
	p.calls.Lock()
	defer p.calls.Unlock()
	switch {
	case p.policy == nil:
	case listener != nil:
		listener(s)
	default:
		//lint:ignore SA1019 policies without a StateListener still rely on it
		p.policy.UpdateSubConnState(sc, s)
	}
}
