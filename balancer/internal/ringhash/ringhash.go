// Package ringhash picks endpoints by the hash of the RPC, so that RPCs with the same hash go
// to the same endpoint (gRFCs A42, A61, A76).
//
// The hash comes from the Decision of the RPC. The package works on the tree's loop, and
// connects to an endpoint only when an RPC needs it or others have failed.
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

// Update sets the endpoints, and the configuration as xdsresource.ParseRingHash reads it. If
// both are unchanged, so is the ring.
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

// ExitIdle connects one endpoint if none is connected or connecting, for a policy above that
// has to find out whether the ring works.
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

// refresh computes the state from those of the endpoints.
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
		// If a priority above has given up on the ring there may be no picks. The ring has to
		// find out by itself that it works again (gRFC A61).
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

// connect is called for a pick, perhaps some time after it.
func (p *Policy) connect(m *shard.Member) {
	m.Requested.Store(false)
	if m.Index() < 0 || m.State().ConnectivityState != connectivity.Idle {
		return
	}
	m.Connect()
	p.memberChanged(m)
}
