// Package random draws a connected endpoint for each RPC: all with the same probability (Envoy's RANDOM), or, as round robin and
// least request of clusters with Envoy's slow_start_config, such that endpoints begin with a part of their share. Clusters
// without that have gRPC's policies for the latter two.
//
// An endpoint starts when its connection is READY for the first time, and again when it is after a
// failure to connect or an ejection, but not when a lost connection is replaced at once.
// The package works on the tree's loop, keeps all endpoints connected, and ignores their weights, as
// gRPC's policies do.
package random

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/perendpoint"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/draw"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Policy picks among the endpoints that are READY.
type Policy struct {
	env     *tree.Env
	changed func()

	set    *perendpoint.Set // each Member has an *endpoint
	config xdsresource.SlowStart
	ready  *group
	state  balancer.State
	// pending says that a refresh is posted.
	pending bool
	// timer is pending while an endpoint is starting.
	timer tree.Timer
}

const nowhere = -1

// endpoint is one endpoint. Pickers read its atomics.
type endpoint struct {
	*perendpoint.Member
	place int // in Policy.ready, or nowhere
	// started is when it last started; zero before that. failed says that it has to start again.
	started time.Time
	failed  bool
	// permille is the part of its share that it gets.
	permille atomic.Uint32
	inFlight atomic.Int64
	done     func(balancer.DoneInfo)
}

// New returns a Policy, which needs an Update before anything else is called. The configuration is as xdsresource.ParseSlowStart reads
// it; RANDOM has an empty one.
func New(env *tree.Env, changed func()) *Policy {
	p := &Policy{env: env, changed: changed}
	p.set = perendpoint.New(env, p.memberChanged)
	return p
}

// Update sets the endpoints, of which one at least is usable, and the configuration.
func (p *Policy) Update(endpoints []xdsresource.Endpoint, config string) {
	p.config, _ = xdsresource.ParseSlowStart(config) // A Cluster with one that has errors is rejected.
	p.set.Update(endpoints)
	members := p.set.Members()
	p.ready = &group{places: make([]atomic.Pointer[endpoint], len(members))}
	for _, m := range members {
		e, _ := m.Data.(*endpoint)
		if e == nil {
			e = &endpoint{Member: m}
			e.done = func(balancer.DoneInfo) { e.inFlight.Add(-1) }
			m.Data = e
		}
		e.place = nowhere
		e.permille.Store(p.config.Permille(p.config.Window))
		p.observe(e)
	}
	p.refresh()
}

func (p *Policy) State() balancer.State { return p.state }

// ExitIdle implements tree.Policy. No endpoint stays idle.
func (p *Policy) ExitIdle() {}

func (p *Policy) Close() {
	p.timer.Stop()
	p.set.Close()
}

// memberChanged has the state computed once for all events that are waiting for the loop.
func (p *Policy) memberChanged(m *perendpoint.Member) {
	e, _ := m.Data.(*endpoint)
	if e == nil || m.Index() < 0 {
		return // It is not in use yet, or no longer.
	}
	p.observe(e)
	if p.pending {
		return
	}
	p.pending = true
	p.env.Loop.Post(func() {
		p.pending = false
		if len(p.set.Members()) > 0 { // Otherwise it is closed.
			p.refresh()
			p.changed()
		}
	})
}

// observe has RPCs go to an endpoint that is READY, and connects one that is idle.
func (p *Policy) observe(e *endpoint) {
	if e.State().ConnectivityState == connectivity.Idle {
		e.Connect()
	}
	s := e.State().ConnectivityState
	ready := s == connectivity.Ready
	e.failed = e.failed || s == connectivity.TransientFailure
	if ready && (e.failed || e.started.IsZero()) {
		e.started, e.failed = time.Now(), false
	}
	switch {
	case ready && e.place == nowhere:
		p.ready.add(e)
	case !ready && e.place != nowhere:
		p.ready.remove(e)
	}
}

// refresh computes the state from those of the endpoints.
func (p *Policy) refresh() {
	p.weigh()
	switch {
	case p.ready.size() > 0 && p.config.ChoiceCount > 0:
		p.state = balancer.State{ConnectivityState: connectivity.Ready, Picker: leastRequest{p.ready, int(p.config.ChoiceCount)}}
	case p.ready.size() > 0:
		p.state = balancer.State{ConnectivityState: connectivity.Ready, Picker: p.ready}
	case p.set.Count()[connectivity.TransientFailure] == len(p.set.Members()):
		p.state = balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: failing(p.set.Members())}
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
	if p.config.Window == 0 {
		p.ready.weights.Store(nil)
		return
	}
	starting, now := false, time.Now()
	weights := make([]uint32, p.ready.size())
	for i := range weights {
		e := p.ready.places[i].Load()
		age := now.Sub(e.started)
		weights[i] = p.config.Permille(age)
		e.permille.Store(weights[i])
		starting = starting || age < p.config.Window
	}
	if !starting {
		p.ready.weights.Store(nil)
		return
	}
	p.ready.weights.Store(draw.New(weights))
	p.env.Loop.After(&p.timer, max(p.config.Window/steps, minStep), p.weigh)
}
