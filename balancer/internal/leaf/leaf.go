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
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Policy is one leaf. Its methods are called on the tree's loop.
type Policy struct {
	changed   func()
	conn      *clientConn
	name      string
	kind      Kind
	parser    balancer.ConfigParser // nil if the policy takes no configuration
	text      string                // what config was parsed from
	config    serviceconfig.LoadBalancingConfig
	configErr error
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

// Kind is what a leaf is for.
type Kind int

const (
	// ForLocality leaves balance over the endpoints of a locality. They connect
	// again when a connection ends.
	ForLocality Kind = iota
	// ForEndpoint leaves keep the connection to one endpoint for a policy of
	// ours. They stay idle until ExitIdle, and are not READY while the endpoint
	// is ejected as an outlier (gRFC A61, "Generic Health Reporting Mechanism").
	ForEndpoint
)

// New returns a leaf that runs the policy of the given name, in the state
// CONNECTING until the policy reports. A name that is not registered gives a
// leaf that fails and says so.
func New(env *tree.Env, name string, kind Kind, changed func()) *Policy {
	p := &Policy{name: name, kind: kind, changed: changed, state: tree.Waiting(connectivity.Connecting)}
	p.conn = newClientConn(env, p)
	builder := balancer.Get(name)
	if builder == nil {
		p.state = tree.Failing(fmt.Errorf("load-balancing policy %q is not registered with gRPC", name))
		return p
	}
	p.parser, _ = builder.(balancer.ConfigParser)
	p.parse("")
	p.calls.Lock()
	defer p.calls.Unlock()
	p.policy = builder.Build(p.conn, env.Options)
	return p
}

// parse makes text the configuration, in JSON; empty: that without any field.
func (p *Policy) parse(text string) {
	p.text = text
	if p.parser == nil {
		return
	}
	if text == "" {
		text = "{}"
	}
	if p.config, p.configErr = p.parser.ParseConfig(json.RawMessage(text)); p.configErr != nil {
		p.configErr = fmt.Errorf("load-balancing policy %q does not take the configuration %s: %v", p.name, text, p.configErr)
	}
}

// Update gives the policy the endpoints to balance over, and its configuration
// in JSON. Endpoints that are not usable (gRFC A27: neither HEALTHY nor
// UNKNOWN) are kept from it. The same as before cost a comparison and nothing
// else.
func (p *Policy) Update(endpoints []xdsresource.Endpoint, config string) {
	if config == p.text && slices.EqualFunc(endpoints, p.endpoints, xdsresource.Endpoint.Equal) {
		return
	}
	p.endpoints = endpoints
	if config != p.text {
		p.parse(config)
	}
	p.updatePolicy()
	// What the policy says of its new endpoints is the state from now on: that
	// before may be a failure of endpoints that are gone. The event of the report
	// comes nevertheless: it may be of a connection that was faster than this, and
	// not everyone above looks at the state after this call.
	if state, ok := p.conn.latestReport(); ok {
		p.state = state
	}
}

func (p *Policy) updatePolicy() {
	p.calls.Lock()
	defer p.calls.Unlock()
	if p.policy == nil {
		return
	}
	if p.configErr != nil {
		p.state = tree.Failing(p.configErr)
		return
	}
	state := resolver.State{Endpoints: resolverEndpoints(p.endpoints, p.conn.env.Bundle)}
	if p.kind == ForEndpoint {
		state = pickfirst.EnableHealthListener(state)
	}
	reports := p.conn.reportCount()
	err := p.policy.UpdateClientConnState(balancer.ClientConnState{ResolverState: state, BalancerConfig: p.config})
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
	state, ok := p.conn.takeReport()
	if !ok {
		return
	}
	p.state = state
	p.changed()
	if state.ConnectivityState == connectivity.Idle && p.kind == ForLocality {
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
