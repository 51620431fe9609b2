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
	"github.com/dynxds/dynxds/internal/bounds"
)

// Policy serves one aggregate cluster.
type Policy struct {
	env     *tree.Env
	name    string
	changed func()

	config *cluster.Config
	// clusters is nil until the clusters are known, and again after an error.
	clusters *priority.Policy[*cluster.Config]
}

// New returns the Policy of an aggregate cluster. RPCs wait until Update.
func New(env *tree.Env, name string, changed func()) *Policy {
	return &Policy{env: env, name: name, changed: changed, config: new(cluster.Config)}
}

// serves reports whether RPCs go to the clusters of a configuration. Otherwise they wait, or fail.
func serves(c *cluster.Config) bool {
	return c.Err == nil && c.Underlying != nil && len(c.Underlying.Names) > 0
}

// Update sets the configuration. Clusters that remain keep their connections, in whatever
// order. If the list of clusters is the same as before, the cost is that of what has changed;
// clusters that have not been needed yet cost next to nothing.
func (p *Policy) Update(c *cluster.Config) {
	before := p.config
	p.config = c
	switch {
	case c.Err != nil:
		p.Close()
	case !serves(c):
	case serves(before) && c.Underlying.SameNames(before.Underlying):
		var changed []entry
		c.Underlying.States.Diff(before.Underlying.States, func(name string, _, now *cluster.Config, _, _ bool) {
			changed = append(changed, entry{Name: name, Config: now})
		})
		p.clusters.Refresh(changed)
	default:
		if p.clusters == nil {
			p.clusters = priority.New(p.env, p.build, p.clustersChanged)
		}
		entries := make([]entry, len(c.Underlying.Names))
		for i, name := range c.Underlying.Names {
			config, _ := c.Underlying.States.Get(name)
			entries[i] = entry{Name: name, Config: config}
		}
		p.clusters.Update(entries)
	}
}

// entry is a cluster with its configuration.
type entry = priority.Entry[*cluster.Config]

func (p *Policy) build(name string, changed func()) tree.Configured[*cluster.Config] {
	return cluster.NewGraceful(p.env, name, nil, changed)
}

func (p *Policy) clustersChanged() {
	if serves(p.config) {
		p.changed()
	}
}

func (p *Policy) State() balancer.State {
	switch {
	case p.config.Err != nil:
		return tree.Failing(p.config.Err, p.config.Notes)
	case !serves(p.config):
		return tree.Waiting(connectivity.Connecting)
	}
	s := p.clusters.State()
	if s.ConnectivityState == connectivity.TransientFailure {
		s.Picker = failing{aggregate: p.name, child: s.Picker, notes: p.config.Notes}
	}
	return s
}

func (p *Policy) ExitIdle() {
	if p.clusters != nil {
		p.clusters.ExitIdle()
	}
}

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

func (f failing) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	result, err := f.child.Pick(info)
	if err == nil || err == balancer.ErrNoSubConnAvailable {
		return result, err
	}
	return result, tree.Explain(err, fmt.Sprintf("dynxds: no cluster of aggregate cluster %s works; of the last one: ", bounds.Quote(f.aggregate)), f.notes)
}
