// Package locality shares RPCs among the localities of one priority by their
// weights (gRFC A27, A28), each locality being a leaf policy.
//
// It does not choose the priority, and does not choose an endpoint. Its
// configuration comes from the cluster's endpoints, and its picker goes to the
// priority policy.
package locality

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/endpointpolicy"
	"github.com/dynxds/dynxds/balancer/internal/leaf"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Config is what a Policy balances over.
type Config struct {
	// LeafPolicy is the name of the policy that picks among a locality's
	// endpoints, LeafConfig its configuration in JSON.
	LeafPolicy, LeafConfig string
	// AcrossLocalities says that Localities is but one, made of all.
	AcrossLocalities bool
	// Localities are those of one priority, of different IDs. Those without a
	// usable endpoint are left out of the balancing.
	Localities []xdsresource.Locality
}

// errEmpty is what RPCs see of a priority that has nothing to connect to.
var errEmpty = errors.New("no locality of the priority has a usable endpoint")

// Policy is one priority's localities.
type Policy struct {
	env     *tree.Env
	changed func()
	members []*member
	state   balancer.State
	// next numbers the picks. It outlives pickers, so that the shares stay
	// exact over an update that does not change them.
	next *atomic.Uint64
}

// member is one locality.
type member struct {
	id         xdsresource.LocalityID
	leafPolicy string
	weight     uint32
	leaf       endpointpolicy.Policy
}

// New returns a Policy without localities, which fails RPCs until Update.
func New(env *tree.Env, changed func()) *Policy {
	p := &Policy{env: env, changed: changed, state: tree.Failing(errEmpty), next: new(atomic.Uint64)}
	// Many clients that start at once must not start with the same locality.
	p.next.Store(rand.Uint64() >> 1)
	return p
}

// Update makes the localities those of c. A locality that was there before
// under the same ID keeps its leaf, and with it its connections.
func (p *Policy) Update(c Config) {
	before := p.members
	p.members = make([]*member, 0, len(c.Localities))
	for i := range c.Localities {
		l := &c.Localities[i]
		if !leaf.Usable(l.Endpoints) {
			continue
		}
		var m *member
		if m, before = takeMember(before, l.ID, c.LeafPolicy); m == nil {
			m = &member{id: l.ID, leafPolicy: c.LeafPolicy, leaf: endpointpolicy.New(p.env, c.LeafPolicy, p.leafChanged)}
		}
		m.weight = l.Weight
		m.leaf.Update(l.Endpoints, c.LeafConfig)
		p.members = append(p.members, m)
	}
	p.wakeIdle()
	p.state = p.aggregate()
	for _, m := range before {
		m.leaf.Close()
	}
}

// takeMember removes the member that fits from members, and returns it.
func takeMember(members []*member, id xdsresource.LocalityID, leafPolicy string) (*member, []*member) {
	for i, m := range members {
		if m.id == id && m.leafPolicy == leafPolicy {
			last := len(members) - 1
			members[i] = members[last]
			return m, members[:last]
		}
	}
	return nil, members
}

// State implements tree.Policy.
func (p *Policy) State() balancer.State { return p.state }

// ExitIdle implements tree.Policy.
func (p *Policy) ExitIdle() {
	for _, m := range p.members {
		m.leaf.ExitIdle()
	}
}

// Close implements tree.Policy.
func (p *Policy) Close() {
	for _, m := range p.members {
		m.leaf.Close()
	}
	p.members = nil
}

func (p *Policy) leafChanged() {
	p.wakeIdle()
	p.state = p.aggregate()
	p.changed()
}

// wakeIdle has idle localities connect, if there are several: one that waits
// for an RPC to do so would get none while another is READY.
func (p *Policy) wakeIdle() {
	if len(p.members) < 2 {
		return
	}
	for _, m := range p.members {
		if m.leaf.State().ConnectivityState == connectivity.Idle {
			m.leaf.ExitIdle()
		}
	}
}

// aggregate is READY if a locality is, else CONNECTING if one is, else IDLE if
// one is, else TRANSIENT_FAILURE. Only READY localities get RPCs, or IDLE ones
// if nothing is connected or about to be; if all have failed, RPCs see the
// localities' errors in proportion to their weights.
func (p *Policy) aggregate() balancer.State {
	for _, s := range [...]connectivity.State{
		connectivity.Ready, connectivity.Connecting, connectivity.Idle, connectivity.TransientFailure,
	} {
		shares := p.shares(s)
		switch {
		case len(shares) == 0:
		case s == connectivity.Connecting:
			return tree.Waiting(s)
		default:
			return balancer.State{ConnectivityState: s, Picker: newPicker(shares, p.next)}
		}
	}
	return tree.Failing(errEmpty)
}

// shares returns the localities in state s.
func (p *Policy) shares(s connectivity.State) []share {
	var shares []share
	for _, m := range p.members {
		if state := m.leaf.State(); state.ConnectivityState == s {
			shares = append(shares, share{weight: m.weight, picker: state.Picker})
		}
	}
	return shares
}
