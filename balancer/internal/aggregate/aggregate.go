// Package aggregate serves an aggregate cluster: RPCs go to the first of the
// clusters under it that works (gRFC A37, A75).
//
// It balances nothing itself. Each cluster under it is served as it would be by
// itself, with its own policy, priorities, limit and outlier detection, and gets
// connections only when its turn comes; package priority does the rest. What the
// clusters are comes from the resolver, flattened.
package aggregate

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/balancer/internal/priority"
	"github.com/dynxds/dynxds/balancer/internal/tree"
)

// Config is what is known of the clusters. Without Err and Underlying they are
// being resolved, and RPCs wait.
type Config struct {
	// Underlying has the clusters, the most preferred first, none of them twice.
	Underlying []Underlying
	// Notes words what is to be added to the errors of RPCs. nil: nothing.
	Notes fmt.Stringer
	// Err is why the aggregate cluster as a whole cannot be used. RPCs see its
	// text, and Notes.
	Err error
}

// Underlying is one cluster.
type Underlying struct {
	Name   string
	Config cluster.Config
}

// Policy serves one aggregate cluster.
type Policy struct {
	env     *tree.Env
	name    string
	changed func()

	phase phase
	notes fmt.Stringer
	// clusters is nil unless there are clusters, or were until the aggregate
	// cluster had to be resolved again.
	clusters *priority.Policy[cluster.Config]
	state    balancer.State
}

// phase is what the Policy does with RPCs.
type phase int

const (
	resolving phase = iota // they wait for the clusters to be known
	unusable               // they fail
	serving                // they go to the clusters
)

// New returns the Policy of the named aggregate cluster, whose RPCs wait until
// Update.
func New(env *tree.Env, name string, changed func()) *Policy {
	return &Policy{env: env, name: name, changed: changed, state: tree.Waiting(connectivity.Connecting)}
}

// Update takes over what is now known. Clusters that were there before keep what
// they have, in whatever order they are now.
func (p *Policy) Update(c Config) {
	p.notes = c.Notes
	switch {
	case c.Err != nil:
		p.Close()
		p.phase = unusable
		p.state = tree.FailingWith(c.Err, c.Notes)
	case len(c.Underlying) == 0:
		p.phase = resolving
		p.state = tree.Waiting(connectivity.Connecting)
	default:
		p.serve(c.Underlying)
	}
}

func (p *Policy) serve(underlying []Underlying) {
	if p.clusters == nil {
		p.clusters = priority.New(p.env, p.build, p.clustersChanged)
	}
	p.clusters.Update(entries(underlying))
	p.phase = serving
	p.adopt()
}

// Refresh takes over what is now known of some of the clusters that the last Update
// had. Those that have not had their turn yet cost next to nothing.
func (p *Policy) Refresh(changed []Underlying) {
	p.clusters.Refresh(entries(changed))
	p.adopt()
}

func entries(underlying []Underlying) []priority.Entry[cluster.Config] {
	entries := make([]priority.Entry[cluster.Config], len(underlying))
	for i, u := range underlying {
		entries[i] = priority.Entry[cluster.Config]{Name: u.Name, Config: u.Config}
	}
	return entries
}

func (p *Policy) build(name string, changed func()) priority.Child[cluster.Config] {
	return cluster.NewSecured(p.env, name, changed)
}

func (p *Policy) clustersChanged() {
	if p.phase == serving {
		p.adopt()
		p.changed()
	}
}

// adopt makes the state of the clusters the Policy's.
func (p *Policy) adopt() {
	p.state = p.clusters.State()
	if p.state.ConnectivityState == connectivity.TransientFailure {
		p.state.Picker = failing{aggregate: p.name, child: p.state.Picker, notes: p.notes}
	}
}

// State implements tree.Policy.
func (p *Policy) State() balancer.State { return p.state }

// ExitIdle implements tree.Policy.
func (p *Policy) ExitIdle() {
	if p.clusters != nil {
		p.clusters.ExitIdle()
	}
}

// Close implements tree.Policy.
func (p *Policy) Close() {
	if p.clusters != nil {
		p.clusters.Close()
		p.clusters = nil
	}
}

// failing is the picker while no cluster works. It has the errors of the cluster
// that is the last resort say which aggregate cluster the RPC was for.
type failing struct {
	aggregate string
	child     balancer.Picker
	notes     fmt.Stringer
}

// Pick implements balancer.Picker.
func (f failing) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	result, err := f.child.Pick(info)
	if err == nil || err == balancer.ErrNoSubConnAvailable {
		return result, err
	}
	s, isStatus := status.FromError(err)
	text := err.Error()
	if isStatus {
		text = s.Message()
	}
	text = tree.Noted(fmt.Sprintf("dynxds: no cluster of aggregate cluster %q works; of the last one: %s", f.aggregate, text), f.notes)
	if isStatus {
		return result, status.Error(s.Code(), text)
	}
	return result, errors.New(text)
}
