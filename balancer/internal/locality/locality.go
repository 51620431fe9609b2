// Package locality distributes RPCs among the localities of one priority by their weights
// (gRFCs A27, A28). Each locality is a policy of its own.
//
// It chooses neither the priority nor the endpoint. Its configuration comes from the cluster
// policy, and its picker goes to the priority policy.
package locality

import (
	"errors"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/leaf"
	"github.com/dynxds/dynxds/balancer/internal/random"
	"github.com/dynxds/dynxds/balancer/internal/ringhash"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Config is the configuration of a Policy.
type Config struct {
	// LeafConfig is the configuration, as JSON, of the policies that pick among a locality's endpoints.
	LeafConfig string
	// Localities are those of one priority, with different IDs. Those without a usable endpoint
	// are ignored.
	Localities []xdsresource.Locality
}

// errEmpty is for RPCs to a priority without usable endpoints.
var errEmpty = errors.New("no locality of the priority has a usable endpoint")

// Policy balances over the localities of one priority.
type Policy struct {
	env     *tree.Env
	leaf    string
	across  bool
	changed func()
	members []*member
	// byState has the localities in each state of tree.Order. If all have failed, RPCs see the errors of the localities in
	// proportion to their weights.
	byState [len(tree.Order)]*shares
}

// member is one locality.
type member struct {
	id     xdsresource.LocalityID
	weight uint32
	leaf   endpointPolicy
	// index is the locality's place in Policy.members, and state the place of its state in tree.Order; -1: it has none.
	index, state int
}

// New returns a Policy without localities, which fails RPCs until Update. leaf names the policy that picks among a locality's endpoints.
// across says that there is a single locality, made of several.
func New(env *tree.Env, leaf string, across bool, changed func()) *Policy {
	return &Policy{env: env, leaf: leaf, across: across, changed: changed}
}

// Update sets the configuration. A locality with the same ID as before keeps its connections.
func (p *Policy) Update(c Config) {
	before := make(map[xdsresource.LocalityID]*member, len(p.members))
	for _, m := range p.members {
		before[m.id] = m
	}
	p.members = make([]*member, 0, len(c.Localities))
	for i := range c.Localities {
		l := &c.Localities[i]
		if !leaf.Usable(l.Endpoints) {
			continue
		}
		m := before[l.ID]
		delete(before, l.ID)
		if m == nil {
			m = p.newMember(l.ID)
		}
		m.weight, m.index = l.Weight, len(p.members)
		m.leaf.Update(l.Endpoints, c.LeafConfig)
		p.members = append(p.members, m)
	}
	clear(p.byState[:])
	for _, m := range p.members {
		m.state = -1
		p.observe(m)
	}
	for _, m := range before {
		m.leaf.Close()
	}
}

func (p *Policy) newMember(id xdsresource.LocalityID) *member {
	m, env := &member{id: id}, *p.env
	if !p.across {
		env.Locality = conns.LocalityName(id)
	}
	m.leaf = newEndpointPolicy(&env, p.leaf, func() { p.leafChanged(m) })
	return m
}

// observe takes in the state of one locality, which it connects if it is idle and there are several: while another one is READY, no
// pick would. The cost is the logarithm of their number.
func (p *Policy) observe(m *member) {
	if len(p.members) > 1 && m.leaf.State().ConnectivityState == connectivity.Idle {
		m.leaf.ExitIdle()
	}
	before := m.state
	m.state = slices.Index(tree.Order[:], m.leaf.State().ConnectivityState)
	for _, i := range [...]int{before, m.state} {
		if i >= 0 {
			p.byState[i] = p.byState[i].with(len(p.members), m.index, m.share(i))
		}
	}
}

// share returns the locality's leaf of the shares of a state, or nil if it has another state.
func (m *member) share(state int) *shares {
	if m.state != state {
		return nil
	}
	return &shares{weight: uint64(m.weight), count: 1, picker: m.leaf.State().Picker}
}

func (p *Policy) ExitIdle() {
	for _, m := range p.members {
		m.leaf.ExitIdle()
	}
}

func (p *Policy) Close() {
	for _, m := range p.members {
		m.leaf.Close()
	}
	p.members = nil
}

func (p *Policy) leafChanged(m *member) {
	if m.index >= len(p.members) || p.members[m.index] != m {
		return // It is not in use yet, or no longer.
	}
	p.observe(m)
	p.changed()
}

// State is the first of tree.Order that a locality has, with a picker over the localities in it.
func (p *Policy) State() balancer.State {
	for i, s := range tree.Order {
		switch {
		case p.byState[i] == nil:
		case s == connectivity.Connecting:
			return tree.Waiting(s)
		default:
			return balancer.State{ConnectivityState: s, Picker: p.byState[i].best()}
		}
	}
	return tree.Failing(errEmpty, nil)
}

// endpointPolicy picks among the endpoints of a locality.
type endpointPolicy interface {
	tree.Policy
	// Update sets the endpoints, and the configuration as JSON, which may be empty.
	Update(endpoints []xdsresource.Endpoint, config string)
}

// newEndpointPolicy returns the policy of a name in xdsresource.Cluster: one of ours, or one
// registered with gRPC. An unknown name gives a policy that fails with an error that names it.
func newEndpointPolicy(env *tree.Env, name string, changed func()) endpointPolicy {
	switch name {
	case xdsresource.PolicyRingHash:
		return ringhash.New(env, changed)
	case xdsresource.PolicyMaglev:
		return ringhash.NewMaglev(env, changed)
	case xdsresource.PolicyRandom, xdsresource.PolicySlowStart:
		return random.New(env, changed)
	default:
		return leaf.New(env, name, leaf.ForLocality, changed)
	}
}

// States returns the connectivity of each locality that has a usable endpoint. A policy across
// localities has one state, of the zero ID. It is for diagnostics.
func (p *Policy) States() map[xdsresource.LocalityID]connectivity.State {
	states := make(map[xdsresource.LocalityID]connectivity.State, len(p.members))
	for _, m := range p.members {
		states[m.id] = m.leaf.State().ConnectivityState
	}
	return states
}

// Failure returns why a locality cannot serve, if that is no error of a connection: for example,
// its policy is unknown. nil: there is no such reason.
func (p *Policy) Failure() error {
	for _, m := range p.members {
		if err := tree.Failure(m.leaf.State()); err != nil {
			return err
		}
	}
	return tree.Failure(p.State())
}
