// Package ringhash picks endpoints by the hash of the RPC, so that RPCs with the same hash go
// to the same endpoint: by a ring (gRFCs A42, A61, A76), or by Maglev's table (Envoy).
//
// The hash comes from the Decision of the RPC. The package works on the tree's loop, and
// connects to an endpoint only when an RPC needs it or others have failed.
package ringhash

import (
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/perendpoint"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Policy is one ring or table.
type Policy struct {
	env     *tree.Env
	changed func()
	place   func(config string, endpoints []xdsresource.Endpoint) (p places, header string)

	set       *perendpoint.Set
	config    string
	endpoints []xdsresource.Endpoint // those in the places of the picker
	picker    *picker                // of the last update
}

// New returns a Policy with a ring, which needs an Update before anything else is called. The
// configuration is as xdsresource.ParseRingHash reads it.
func New(env *tree.Env, changed func()) *Policy {
	return newPolicy(env, changed, func(config string, e []xdsresource.Endpoint) (places, string) {
		c, _ := xdsresource.ParseRingHash(config) // A Cluster with one that has errors is rejected.
		return newRing(e, c), c.RequestHashHeader
	})
}

// NewMaglev is New with a table. The configuration is as xdsresource.ParseMaglev reads it.
func NewMaglev(env *tree.Env, changed func()) *Policy {
	return newPolicy(env, changed, func(config string, e []xdsresource.Endpoint) (places, string) {
		c, _ := xdsresource.ParseMaglev(config) // A Cluster with one that has errors is rejected.
		return lookup{newTable(e, c.TableSize), len(e)}, ""
	})
}

func newPolicy(env *tree.Env, changed func(), place func(string, []xdsresource.Endpoint) (places, string)) *Policy {
	p := &Policy{env: env, changed: changed, place: place}
	p.set = perendpoint.New(env, p.memberChanged)
	return p
}

// Update sets the endpoints, of which one at least is usable, and the configuration. If both are unchanged, so are the places.
func (p *Policy) Update(endpoints []xdsresource.Endpoint, config string) {
	p.set.Update(endpoints)
	usable := make([]xdsresource.Endpoint, 0, len(endpoints))
	for _, m := range p.set.Members() {
		usable = append(usable, m.Endpoint())
	}
	now := &picker{policy: p, members: p.set.Members()}
	if p.picker == nil || config != p.config || !slices.EqualFunc(usable, p.endpoints, xdsresource.Endpoint.Equal) {
		p.config, p.endpoints = config, usable
		now.places, now.header = p.place(config, usable)
	} else {
		now.places, now.header = p.picker.places, p.picker.header
	}
	p.picker = now
	p.revive()
}

func (p *Policy) State() balancer.State {
	return balancer.State{ConnectivityState: p.aggregate(), Picker: p.picker}
}

// ExitIdle connects one endpoint if none is connected or connecting, for a policy above that
// has to find out whether the ring works.
func (p *Policy) ExitIdle() {
	if p.aggregate() == connectivity.Idle {
		p.connectOne()
	}
}

func (p *Policy) Close() { p.set.Close() }

func (p *Policy) memberChanged(*perendpoint.Member) {
	p.revive()
	p.changed()
}

// revive has an endpoint connect unless RPCs see to that. If a priority above has given up on the ring there may be no picks: the ring
// has to find out by itself that it works again (gRFC A61).
func (p *Policy) revive() {
	if s := p.aggregate(); s == connectivity.Connecting || s == connectivity.TransientFailure {
		p.connectOne()
	}
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

// connect is called for a pick, perhaps some time after it.
func (p *Policy) connect(m *perendpoint.Member) {
	m.Requested.Store(false)
	if m.Index() < 0 || m.State().ConnectivityState != connectivity.Idle {
		return
	}
	m.Connect()
	p.memberChanged(m)
}
