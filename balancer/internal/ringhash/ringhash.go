// Package ringhash picks endpoints by the hash of the RPC, so that RPCs with
// the same hash go to the same endpoint (gRFC A42, A61, A76).
//
// It does not compute the hash: the Decision of the RPC has it. It works on the
// tree's loop and connects to an endpoint only when an RPC is for it, or when
// others have failed.
package ringhash

import (
	"errors"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/shard"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

var errEmpty = errors.New("the ring has no usable endpoint")

// Policy is one ring.
type Policy struct {
	env     *tree.Env
	changed func()

	set       *shard.Set
	text      string // what config was parsed from
	config    xdsresource.RingHash
	configErr error
	endpoints []xdsresource.Endpoint // those on the ring
	ring      ring
	picker    *picker // of ring
	state     balancer.State
}

// New returns a Policy without endpoints, which fails RPCs until Update.
func New(env *tree.Env, changed func()) *Policy {
	p := &Policy{env: env, changed: changed, state: tree.Failing(errEmpty)}
	p.config, p.configErr = xdsresource.ParseRingHash("")
	p.set = shard.New(env, p.memberChanged)
	return p
}

// Update makes the endpoints those of the ring. config is in the form of
// xdsresource.ParseRingHash. The same as before leave the ring as it is.
func (p *Policy) Update(endpoints []xdsresource.Endpoint, config string) {
	p.set.Update(endpoints)
	members := slices.Clone(p.set.Members())
	usable := make([]xdsresource.Endpoint, 0, len(endpoints))
	for _, m := range members {
		usable = append(usable, m.Endpoint())
	}
	if p.ring == nil || config != p.text || !slices.EqualFunc(usable, p.endpoints, xdsresource.Endpoint.Equal) {
		p.text = config
		p.config, p.configErr = xdsresource.ParseRingHash(config)
		p.endpoints, p.ring = usable, nil
		if len(usable) > 0 && p.configErr == nil {
			p.ring = newRing(usable, p.config)
		}
	}
	if p.picker == nil || p.config.RequestHashHeader != p.picker.header || !slices.Equal(members, p.picker.members) ||
		!p.ring.is(p.picker.ring) {
		p.picker = p.newPicker(members)
	}
	p.refresh()
}

// State implements tree.Policy.
func (p *Policy) State() balancer.State { return p.state }

// ExitIdle connects an endpoint if none is connected or about to be: it does
// for a policy above that wants to know whether the ring works.
func (p *Policy) ExitIdle() {
	if p.state.ConnectivityState == connectivity.Idle {
		p.connectOne()
		p.refresh()
	}
}

// Close implements tree.Policy.
func (p *Policy) Close() { p.set.Close() }

func (p *Policy) memberChanged(*shard.Member) {
	p.refresh()
	p.changed()
}

// refresh makes the state that of the endpoints together.
func (p *Policy) refresh() {
	switch {
	case p.configErr != nil:
		p.state = tree.Failing(p.configErr)
		return
	case p.ring == nil:
		p.state = tree.Failing(errEmpty)
		return
	}
	s := p.aggregate()
	if s == connectivity.Connecting || s == connectivity.TransientFailure {
		// Nobody may be picking, if a priority above has given up on the ring;
		// it must find out by itself when it works again (gRFC A61).
		p.connectOne()
	}
	p.state = balancer.State{ConnectivityState: s, Picker: p.picker}
}

// aggregate is gRFC A42, "Aggregated Connectivity State".
func (p *Policy) aggregate() connectivity.State {
	n := p.set.Count()
	failed := n[connectivity.TransientFailure]
	switch {
	case n[connectivity.Ready] > 0:
		return connectivity.Ready
	case failed > 1:
		return connectivity.TransientFailure
	case n[connectivity.Connecting] > 0 || failed == 1 && len(p.endpoints) > 1:
		return connectivity.Connecting
	case n[connectivity.Idle] > 0:
		return connectivity.Idle
	default:
		return connectivity.TransientFailure
	}
}

// connectOne connects the first idle endpoint unless one is connecting.
func (p *Policy) connectOne() {
	if p.set.Connecting() {
		return
	}
	if m := p.set.FirstIdle(); m != nil {
		m.Connect()
	}
}

func (p *Policy) newPicker(members []*shard.Member) *picker {
	return &picker{
		ring: p.ring, members: members, header: p.config.RequestHashHeader, connecting: p.set.Connecting,
		connect: func(m *shard.Member) { p.env.Loop.PostFromPick(func() { p.connect(m) }) },
	}
}

// connect is what a pick asked for, maybe a while ago.
func (p *Policy) connect(m *shard.Member) {
	m.Asked.Store(false)
	if m.Index() < 0 || m.State().ConnectivityState != connectivity.Idle {
		return
	}
	m.Connect()
	p.memberChanged(m)
}
