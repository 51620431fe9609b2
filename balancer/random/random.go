// Package random picks any endpoint that is connected, each as likely as the
// others (Envoy's RANDOM). Weights of endpoints mean nothing to it.
//
// It works on the tree's loop and keeps all endpoints connected.
package random

import (
	"errors"
	"math/rand/v2"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/balancer/shard"
	"github.com/dynxds/dynxds/xdsresource"
)

var errEmpty = errors.New("there is no usable endpoint")

// Policy picks at random.
type Policy struct {
	changed func()
	set     *shard.Set
	state   balancer.State
}

// New returns a Policy without endpoints, which fails RPCs until Update.
func New(env *tree.Env, changed func()) *Policy {
	p := &Policy{changed: changed, state: tree.Failing(errEmpty)}
	p.set = shard.New(env, p.memberChanged)
	return p
}

// Update makes the endpoints those to pick from. There is no configuration.
func (p *Policy) Update(endpoints []xdsresource.Endpoint, _ string) {
	p.set.Update(endpoints)
	p.refresh()
}

// State implements tree.Policy.
func (p *Policy) State() balancer.State { return p.state }

// ExitIdle implements tree.Policy. No endpoint is left idle anyway.
func (p *Policy) ExitIdle() {}

// Close implements tree.Policy.
func (p *Policy) Close() { p.set.Close() }

func (p *Policy) memberChanged() {
	p.refresh()
	p.changed()
}

func (p *Policy) refresh() {
	var ready, failed picker
	for _, m := range p.set.Members() {
		s := m.State()
		switch s.ConnectivityState {
		case connectivity.Ready:
			ready = append(ready, s.Picker)
		case connectivity.TransientFailure:
			failed = append(failed, s.Picker)
		case connectivity.Idle:
			m.Connect()
		}
	}
	switch members := len(p.set.Members()); {
	case members == 0:
		p.state = tree.Failing(errEmpty)
	case len(ready) > 0:
		p.state = balancer.State{ConnectivityState: connectivity.Ready, Picker: ready}
	case len(failed) == members:
		p.state = balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: failed}
	default:
		p.state = tree.Waiting(connectivity.Connecting)
	}
}

// picker has one entry for each endpoint.
type picker []balancer.Picker

// Pick takes no lock and allocates nothing.
func (p picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	return p[rand.IntN(len(p))].Pick(info)
}
