// Package aggregate serves an aggregate cluster: RPCs go to the first of the clusters under it
// that works (gRFCs A37, A75).
//
// It balances nothing itself. Each underlying cluster has its own policy, priorities, limit and
// outlier detection, and is connected only when those before it have failed, which package
// priority decides. The resolver flattens the list of clusters.
package aggregate

import (
	"fmt"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/cluster"
	"github.com/dynxds/dynxds/balancer/internal/priority"
	"github.com/dynxds/dynxds/balancer/internal/tree"
)

// Config is what is known of the clusters. Without Err and Underlying they are being resolved,
// and RPCs wait.
type Config struct {
	// Underlying has the clusters in order of preference, without duplicates.
	Underlying []Underlying
	// Notes, if not nil, is added to the errors of RPCs.
	Notes fmt.Stringer
	// Err is why the aggregate cluster as a whole cannot be used. RPCs fail with its text.
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
	err   error // why it is unusable
	notes fmt.Stringer
	// clusters is nil until the clusters are known, and again after an error.
	clusters *priority.Policy[cluster.Config]
	state    balancer.State
}

// phase is what happens to RPCs.
type phase int

const (
	resolving phase = iota // they wait for the clusters to be known
	unusable               // they fail
	serving                // they go to the clusters
)

// New returns the Policy of an aggregate cluster. RPCs wait until Update.
func New(env *tree.Env, name string, changed func()) *Policy {
	return &Policy{env: env, name: name, changed: changed, state: tree.Waiting(connectivity.Connecting)}
}

// Update sets the configuration. Clusters that remain keep their connections, in whatever
// order.
func (p *Policy) Update(c Config) {
	p.notes = c.Notes
	switch {
	case c.Err != nil:
		p.Close()
		p.phase, p.err = unusable, c.Err
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
	p.refreshState()
}

// Refresh replaces the configuration of some clusters of the last Update. Those that have not
// been needed yet cost next to nothing.
func (p *Policy) Refresh(changed []Underlying) {
	p.clusters.Refresh(entries(changed))
	p.refreshState()
}

func entries(underlying []Underlying) []priority.Entry[cluster.Config] {
	entries := make([]priority.Entry[cluster.Config], len(underlying))
	for i, u := range underlying {
		entries[i] = priority.Entry[cluster.Config]{Name: u.Name, Config: u.Config}
	}
	return entries
}

func (p *Policy) build(name string, changed func()) tree.Configured[cluster.Config] {
	return cluster.NewSecured(p.env, name, changed)
}

func (p *Policy) clustersChanged() {
	if p.phase == serving {
		p.refreshState()
		p.changed()
	}
}

// refreshState makes the state of the clusters the Policy's.
func (p *Policy) refreshState() {
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

// failing is the picker while no cluster works. It adds the aggregate cluster's name to the
// errors of the last one.
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
	return result, tree.Explain(err, fmt.Sprintf("dynxds: no cluster of aggregate cluster %q works; of the last one: ", f.aggregate), f.notes)
}
