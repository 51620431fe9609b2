// Package locality distributes RPCs among the localities of one priority by their weights
// (gRFCs A27, A28). Each locality is a policy of its own.
//
// It chooses neither the priority nor the endpoint. Its configuration comes from the cluster
// policy, and its picker goes to the priority policy.
package locality

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/leaf"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Config is the configuration of a Policy.
type Config struct {
	// LeafPolicy names the policy that picks among a locality's endpoints; LeafConfig is its
	// configuration, as JSON.
	LeafPolicy, LeafConfig string
	// AcrossLocalities says that Localities is a single one, made of Merged.
	AcrossLocalities bool
	Merged           []xdsresource.Locality
	// Localities are those of one priority, with different IDs. Those without a usable endpoint
	// are ignored.
	Localities []xdsresource.Locality
}

// errEmpty is for RPCs to a priority without usable endpoints.
var errEmpty = errors.New("no locality of the priority has a usable endpoint")

// Policy balances over the localities of one priority.
type Policy struct {
	env     *tree.Env
	changed func()
	members []*member
	state   balancer.State
	// next counts the picks. New pickers continue with it, so that the shares stay exact over
	// an update that does not change them.
	next *atomic.Uint64
}

// member is one locality.
type member struct {
	id         xdsresource.LocalityID
	leafPolicy string
	weight     uint32
	leaf       endpointPolicy
	// place is where the endpoints are, for telemetry.
	place *tree.Locality
}

// New returns a Policy without localities, which fails RPCs until Update.
func New(env *tree.Env, changed func()) *Policy {
	p := &Policy{env: env, changed: changed, state: tree.Failing(errEmpty), next: new(atomic.Uint64)}
	// Clients that start at the same time must not all start with the same locality.
	p.next.Store(rand.Uint64() >> 1)
	return p
}

// Update sets the configuration. A locality with the same ID as before keeps its connections.
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
			m = p.newMember(l.ID, c)
		}
		if c.AcrossLocalities {
			m.place.Set(c.Merged)
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

func (p *Policy) newMember(id xdsresource.LocalityID, c Config) *member {
	m := &member{id: id, leafPolicy: c.LeafPolicy, place: new(tree.Locality)}
	if !c.AcrossLocalities {
		m.place = tree.NewLocality(id)
	}
	m.leaf = newEndpointPolicy(p.env.ForLocality(m.place), c.LeafPolicy, p.leafChanged)
	return m
}

// takeMember removes the matching member from members, and returns it.
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

func (p *Policy) State() balancer.State { return p.state }

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

func (p *Policy) leafChanged() {
	p.wakeIdle()
	p.state = p.aggregate()
	p.changed()
}

// wakeIdle connects idle localities if there are several: while another one is READY, no pick
// would.
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

// aggregate returns the state that is first in the order READY, CONNECTING, IDLE,
// TRANSIENT_FAILURE, with a picker over the localities in that state. So if all have failed,
// RPCs see the errors of the localities in proportion to their weights.
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
