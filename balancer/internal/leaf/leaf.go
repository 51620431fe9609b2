// Package leaf runs one of gRPC's own policies, such as round_robin, by its name in gRPC's
// registry, as a leaf of the tree.
//
// It converts the endpoints of one locality to the form that such a policy takes, and posts the
// policy's reports to the tree's loop. It picks no endpoint itself, and knows nothing of
// localities, priorities or clusters.
package leaf

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/balancer/weightedroundrobin"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/grpcbridge"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Policy is one leaf. Its methods as a tree.Policy are called on the tree's loop, and so is gRPC's policy, one call at a time as by gRPC.
type Policy struct {
	balancer.ClientConn
	env       *tree.Env
	changed   func()
	user      conns.User
	name      string
	kind      Kind
	parser    balancer.ConfigParser // nil if the policy takes no configuration
	text      string                // what config was parsed from
	config    serviceconfig.LoadBalancingConfig
	configErr error
	endpoints []xdsresource.Endpoint
	state     balancer.State
	// attributes are for the policy: what its metrics have as labels, or what a plugin's needs; or nil.
	attributes *attributes.Attributes
	policy     balancer.Balancer // nil if it could not be built, or is closed
	// report waits for the loop, or is nil. A newer report replaces an older one: however often a policy reports, the queue
	// has one event of the policy at most.
	report atomic.Pointer[balancer.State]
}

// Kind is the purpose of a leaf.
type Kind int

const (
	// ForLocality leaves balance over the endpoints of a locality.
	ForLocality Kind = iota
	// ForEndpoint leaves have one endpoint, for policies of ours. They stay idle until
	// ExitIdle, and are not READY while outlier detection ejects the endpoint (gRFC A61,
	// "Generic Health Reporting Mechanism").
	ForEndpoint
	// ForPlugin has no endpoints, but clusters of the channel.
	ForPlugin
)

// New returns a leaf that runs the named policy. It is CONNECTING until the policy reports. If
// the name is not registered, the leaf fails with an error that names it.
func New(env *tree.Env, name string, kind Kind, changed func()) *Policy {
	p := &Policy{
		ClientConn: env.ClientConn, env: env, name: name, kind: kind, changed: changed, attributes: labelsOf(env, kind),
		state: tree.Waiting(connectivity.Connecting),
	}
	builder := balancer.Get(name)
	if builder == nil {
		p.state = tree.Failing(fmt.Errorf("load-balancing policy %s is not registered with gRPC", bounds.Quote(name)), nil)
		return p
	}
	p.parser, _ = builder.(balancer.ConfigParser)
	p.parse("")
	p.policy = builder.Build(p, env.Options)
	return p
}

// NewForPlugin returns a policy that chooses among clusters of the channel, by the attributes that it gets.
func NewForPlugin(env *tree.Env, name string, a *attributes.Attributes, changed func()) *Policy {
	p := New(env, name, ForPlugin, changed)
	p.attributes = a
	return p
}

// labelsOf returns the attributes that give a policy of gRPC's the labels of its metrics, nil if
// they are not recorded: grpc.lb.backend_service (gRFC A89, "Add grpc.lb.backend_service to WRR
// metrics"), and grpc.lb.locality (gRFC A78) if all its endpoints are in one. Those of one endpoint
// have no such metrics.
func labelsOf(env *tree.Env, kind Kind) *attributes.Attributes {
	if !env.Recorded || kind != ForLocality {
		return nil
	}
	labels := weightedroundrobin.SetBackendService(resolver.State{}, env.Cluster).Attributes
	if env.Locality != "" {
		labels = grpcbridge.WithLocality(labels, env.Locality)
	}
	return labels
}

// parse sets the configuration from JSON. An empty text is a configuration without fields.
func (p *Policy) parse(text string) {
	p.text = text
	if p.parser == nil {
		return
	}
	if p.config, p.configErr = p.parser.ParseConfig(json.RawMessage(cmp.Or(text, "{}"))); p.configErr != nil {
		p.configErr = fmt.Errorf("load-balancing policy %q does not take the configuration %s: %s",
			p.name, bounds.Text(text, bounds.ErrorText), bounds.Text(p.configErr.Error(), bounds.ErrorText))
	}
}

// Update sets the endpoints and the configuration, as JSON. The policy does not get endpoints
// that are neither HEALTHY nor UNKNOWN (gRFC A27). An update without a change costs a
// comparison.
func (p *Policy) Update(endpoints []xdsresource.Endpoint, config string) {
	if config == p.text && slices.EqualFunc(endpoints, p.endpoints, xdsresource.Endpoint.Equal) {
		return
	}
	p.endpoints = endpoints
	if config != p.text {
		p.parse(config)
	}
	p.updatePolicy()
	// The policy's report on its new endpoints is the state from now on: the old state may be a
	// failure of endpoints that were removed. The report is posted nevertheless, as it may be
	// about a connection that was faster than this, and not all callers read the state after
	// Update.
	if report := p.report.Load(); report != nil {
		p.state = *report
	}
}

func (p *Policy) updatePolicy() {
	if p.policy == nil {
		return
	}
	if p.configErr != nil {
		p.state = tree.Failing(p.configErr, nil)
		return
	}
	custom := !xdsresource.IsKnownPolicy(p.name)
	state := resolver.State{Endpoints: resolverEndpoints(p.endpoints, p.env.Bundle, custom), Attributes: p.attributes}
	if custom {
		state.Addresses = flattened(state.Endpoints)
	}
	if p.kind == ForEndpoint {
		state = pickfirst.EnableHealthListener(state)
	}
	before := p.report.Load()
	err := p.policy.UpdateClientConnState(balancer.ClientConnState{ResolverState: state, BalancerConfig: p.config})
	if err != nil && p.report.Load() == before {
		// A policy that has reported as well uses what it can.
		p.UpdateState(tree.Failing(fmt.Errorf("load-balancing policy refused its endpoints: %v", err), nil))
	}
}

func (p *Policy) State() balancer.State { return p.state }

func (p *Policy) ExitIdle() {
	if p.policy != nil {
		p.policy.ExitIdle()
	}
}

// Close implements tree.Policy. RPCs in flight continue.
func (p *Policy) Close() {
	if p.policy != nil {
		p.policy.Close()
		p.policy = nil
	}
	if p.kind != ForPlugin {
		p.env.Endpoints.CloseUser(&p.user)
	}
}

// reported applies the latest report of the policy, on the loop.
func (p *Policy) reported() {
	report := p.report.Swap(nil)
	if p.policy == nil {
		return // It is closed.
	}
	p.state = *report
	p.changed()
}

// listener returns what calls the policy with the states of a SubConn that the policy has opened with a
// StateListener, which old ones do without.
func (p *Policy) listener(state func(balancer.SubConnState)) func(*conns.Conn, balancer.SubConnState) {
	return func(sc *conns.Conn, s balancer.SubConnState) {
		switch {
		case p.policy == nil: // It is closed.
		case state != nil:
			state(s)
		default:
			//lint:ignore SA1019 policies without a StateListener still rely on it
			p.policy.UpdateSubConnState(sc, s)
		}
	}
}

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
