package cluster

import (
	"fmt"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/priority"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// aggregate serves an aggregate cluster: RPCs go to the first of the clusters under it
// that works (gRFCs A37, A75).
//
// It balances nothing itself. Each underlying cluster has its own policy, priorities, limit and
// outlier detection, and is connected only when those before it have failed, which package
// priority decides. The resolver flattens the list of clusters.
type aggregate struct {
	env     *tree.Env
	name    string
	changed func()

	config *Config
	// clusters is nil until the clusters are known, and again after an error.
	clusters *priority.Policy[*Config]
}

// newAggregate returns the policy of an aggregate cluster. RPCs wait until Update.
func newAggregate(env *tree.Env, name string, changed func()) *aggregate {
	return &aggregate{env: env, name: name, changed: changed, config: new(Config)}
}

// serves reports whether RPCs go to the clusters of a configuration. Otherwise they wait, or fail.
func serves(c *Config) bool {
	return c.Err == nil && c.Underlying != nil && len(c.Underlying.Names) > 0
}

// Update sets the configuration. Clusters that remain keep their connections, in whatever
// order. An update with the same list of clusters costs what has changed. A cluster that no RPC has needed yet costs
// next to nothing.
func (a *aggregate) Update(c *Config) {
	before := a.config
	a.config = c
	switch {
	case c.Err != nil:
		a.Close()
	case !serves(c):
	case serves(before) && c.SameList(before):
		var changed []member
		c.Underlying.States.Diff(before.Underlying.States, func(name string, _, now *Config, _, _ bool) {
			changed = append(changed, member{Name: name, Config: now})
		})
		a.clusters.Refresh(changed)
	default:
		if a.clusters == nil {
			a.clusters = priority.New(a.env, a.build, a.clustersChanged)
		}
		entries := make([]member, len(c.Underlying.Names))
		for i, name := range c.Underlying.Names {
			config, _ := c.Underlying.States.Get(name)
			entries[i] = member{Name: name, Config: config}
		}
		a.clusters.Update(entries)
	}
}

// member is a cluster with its configuration.
type member = priority.Entry[*Config]

func (a *aggregate) build(name string, changed func()) tree.Configured[*Config] {
	return NewGraceful(a.env, name, nil, changed)
}

func (a *aggregate) clustersChanged() {
	if serves(a.config) {
		a.changed()
	}
}

func (a *aggregate) State() balancer.State {
	switch {
	case a.config.Err != nil:
		return tree.Failing(a.config.Err, a.config.Notes)
	case !serves(a.config):
		return tree.Waiting(connectivity.Connecting)
	}
	s := a.clusters.State()
	if s.ConnectivityState == connectivity.TransientFailure {
		s.Picker = failingAggregate{name: a.name, child: s.Picker, notes: a.config.Notes}
	}
	return s
}

func (a *aggregate) ExitIdle() {
	if a.clusters != nil {
		a.clusters.ExitIdle()
	}
}

func (a *aggregate) Close() {
	if a.clusters != nil {
		a.clusters.Close()
		a.clusters = nil
	}
}

// failingAggregate is the picker while no cluster works. It adds the aggregate cluster's name to the
// errors of the last one.
type failingAggregate struct {
	name  string
	child balancer.Picker
	notes fmt.Stringer
}

func (f failingAggregate) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	result, err := f.child.Pick(info)
	if err == nil || err == balancer.ErrNoSubConnAvailable {
		return result, err
	}
	return result, tree.Explain(err, fmt.Sprintf("dynxds: no cluster of aggregate cluster %s works; of the last one: ", bounds.Quote(f.name)), f.notes)
}

// Inspect describes the cluster for diagnostics. It changes nothing.
func (a *aggregate) Inspect() inspect.Cluster {
	d := configured(a.name, a.config)
	d.Kind = xdsresource.ClusterAggregate.String()
	d.State = inspect.State(a.State().ConnectivityState.String())
	if !serves(a.config) {
		return d
	}
	u := a.config.Underlying
	d.Members = make([]inspect.Member, len(u.Names))
	for i, name := range u.Names {
		m := &d.Members[i]
		use, policy := a.clusters.Inspect(i)
		m.Use = use
		if serving, ok := policy.(*Graceful); ok {
			m.Cluster = serving.Inspect()
			m.Use.Error = failure(&m.Cluster)
		} else {
			config, _ := u.States.Get(name)
			m.Cluster = Describe(name, config)
		}
	}
	return d
}

// failure returns the last error of a cluster.
func failure(c *inspect.Cluster) string {
	if c.Phase == inspect.PhaseFailed {
		return c.Error
	}
	for i := range c.Priorities {
		if use := &c.Priorities[i].Use; use.InUse {
			return use.Error
		}
	}
	return ""
}
