// Package slowstart is round robin and least request for clusters whose endpoints begin with a part
// of their share of the RPCs (Envoy's slow_start_config). Clusters without that have gRPC's policies.
// Its round robin draws endpoints at random, by the parts.
//
// An endpoint starts when its connection is READY for the first time, and again when it is after a
// failure to connect or an ejection, but not when a lost connection is replaced at once.
// The package works on the tree's loop, keeps all endpoints connected, and ignores their weights, as
// gRPC's policies do.
package slowstart

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/perendpoint"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Policy picks among the endpoints that are READY.
type Policy struct {
	env     *tree.Env
	changed func()

	set       *perendpoint.Set
	text      string // what config was parsed from
	config    xdsresource.SlowStart
	configErr error
	endpoints map[*perendpoint.Member]*endpoint
	ready     []*endpoint
	// weights are those of ready, for the picker of round robin.
	weights *weights
	state   balancer.State
	// pending says that a refresh is posted.
	pending bool
	// timer runs while an endpoint is starting.
	timer *tree.Timer
}

// endpoint is one endpoint. Pickers read its atomics.
type endpoint struct {
	*perendpoint.Member
	// started is when it last started; zero before that. failed says that it has to start again.
	started time.Time
	failed  bool
	// permille is the part of its share that it gets.
	permille atomic.Uint32
	inFlight atomic.Int64
	done     func(balancer.DoneInfo)
}

// New returns a Policy without endpoints, which fails RPCs until Update.
func New(env *tree.Env, changed func()) *Policy {
	p := &Policy{
		env: env, changed: changed, endpoints: make(map[*perendpoint.Member]*endpoint),
		state: tree.Failing(perendpoint.ErrEmpty),
	}
	p.config, p.configErr = xdsresource.ParseSlowStart("")
	p.set = perendpoint.New(env, p.memberChanged)
	return p
}

// Update sets the endpoints, and the configuration as xdsresource.ParseSlowStart reads it.
func (p *Policy) Update(endpoints []xdsresource.Endpoint, config string) {
	if config != p.text {
		p.text = config
		p.config, p.configErr = xdsresource.ParseSlowStart(config)
	}
	p.set.Update(endpoints)
	for m := range p.endpoints {
		if m.Index() < 0 {
			delete(p.endpoints, m)
		}
	}
	for _, m := range p.set.Members() {
		if p.endpoints[m] == nil {
			e := &endpoint{Member: m}
			e.done = func(balancer.DoneInfo) { e.inFlight.Add(-1) }
			p.endpoints[m] = e
		}
		p.observe(m)
	}
	p.refresh()
}

func (p *Policy) State() balancer.State { return p.state }

// ExitIdle implements tree.Policy. No endpoint stays idle.
func (p *Policy) ExitIdle() {}

func (p *Policy) Close() {
	p.timer.Stop()
	p.set.Close()
	p.endpoints = nil
}

// memberChanged has the state computed once for all events that are waiting for the loop.
func (p *Policy) memberChanged(m *perendpoint.Member) {
	p.observe(m)
	if p.pending {
		return
	}
	p.pending = true
	p.env.Loop.Post(func() {
		p.pending = false
		if p.endpoints != nil {
			p.refresh()
			p.changed()
		}
	})
}

// observe notes the state of an endpoint, and connects it if it is idle.
func (p *Policy) observe(m *perendpoint.Member) {
	e := p.endpoints[m]
	if e == nil || m.Index() < 0 {
		return
	}
	if m.State().ConnectivityState == connectivity.Idle {
		m.Connect()
	}
	switch m.State().ConnectivityState {
	case connectivity.TransientFailure:
		e.failed = true
	case connectivity.Ready:
		if e.failed || e.started.IsZero() {
			e.started, e.failed = time.Now(), false
		}
	}
}

// refresh computes the state from those of the endpoints.
func (p *Policy) refresh() {
	var failed []*endpoint
	p.ready = nil
	for _, m := range p.set.Members() {
		switch m.State().ConnectivityState {
		case connectivity.Ready:
			p.ready = append(p.ready, p.endpoints[m])
		case connectivity.TransientFailure:
			failed = append(failed, p.endpoints[m])
		}
	}
	p.weights = new(weights)
	p.weigh()
	switch members := len(p.set.Members()); {
	case p.configErr != nil:
		p.state = tree.Failing(p.configErr)
	case members == 0:
		p.state = tree.Failing(perendpoint.ErrEmpty)
	case len(p.ready) > 0 && p.config.ChoiceCount > 0:
		p.state = balancer.State{ConnectivityState: connectivity.Ready, Picker: &leastRequest{p.ready, int(p.config.ChoiceCount)}}
	case len(p.ready) > 0:
		p.state = balancer.State{ConnectivityState: connectivity.Ready, Picker: &byWeight{p.ready, p.weights}}
	case len(failed) == members:
		equal := new(weights)
		equal.set(failed)
		p.state = balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: &byWeight{failed, equal}}
	default:
		p.state = tree.Waiting(connectivity.Connecting)
	}
}

// steps is in how many steps an endpoint starts; minStep is the least time between two.
const (
	steps   = 50
	minStep = 100 * time.Millisecond
)

// weigh sets the weights of the endpoints that are READY, now and again while one is starting. The
// picker reads them: a step costs those above nothing.
func (p *Policy) weigh() {
	p.timer.Stop()
	p.timer = nil
	starting, now := false, time.Now()
	for _, e := range p.ready {
		age := now.Sub(e.started)
		e.permille.Store(p.config.Permille(age))
		starting = starting || age < p.config.Window
	}
	p.weights.set(p.ready)
	if starting {
		p.timer = p.env.Loop.After(max(p.config.Window/steps, minStep), p.weigh)
	}
}
