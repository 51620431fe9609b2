// Package cluster serves one cluster: it has the priorities of its endpoints, and below them
// localities and leaves; or, for an aggregate cluster, the clusters under it.
//
// It derives the configuration of those policies from the cluster's resources, without touching
// what a change does not affect, and words the errors of RPCs to the cluster. It does not
// choose clusters, and does not wait for a first RPC: the root does both.
package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/balancer/internal/locality"
	"github.com/dynxds/dynxds/balancer/internal/outlier"
	"github.com/dynxds/dynxds/balancer/internal/priority"
	"github.com/dynxds/dynxds/balancer/internal/traffic"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/clustertls"
	"github.com/dynxds/dynxds/internal/load"
)

var logger = boundlog.Component("dynxds")

// Policy serves one cluster, which needs the same in all Updates.
type Policy struct {
	env     *tree.Env // of the cluster
	need    need
	changed func()

	config *Config // an empty one before the first Update, and after Close
	// labels are the telemetry labels of the cluster's RPCs.
	labels Labels
	err    error // why the cluster is unusable: its endpoints are known, and none is to be offered
	names  names
	// warned says that the cluster has too many endpoints, which is logged once.
	warned bool
	// priorities is nil if no endpoint gets RPCs: only sessions have some to go to, all RPCs are dropped, or err says why not.
	priorities *priority.Policy[locality.Config]
	// outliers ejects endpoints.
	outliers *outlier.Detector
	// gate counts the cluster's RPCs, and keeps some out. It is nil until there are endpoints.
	gate *gate
	// loads are for load reports. nil: there are none.
	loads *load.Cluster
}

// newPolicy returns the Policy of the named cluster, which needs an Update at once. bundle secures its connections. before is what the
// Policy before has ejected, or nil.
func newPolicy(of *tree.Env, name string, n need, bundle *clustertls.Bundle, before *outlier.Detector, changed func()) *Policy {
	env := *of
	p := &Policy{env: &env, need: n, changed: changed, config: new(Config), labels: LabelsOf(name, nil)}
	p.names.seed = rand.Uint64()
	env.Cluster, env.Bundle, env.ResolveNow = name, bundle, p.resolveNow
	env.Endpoints = conns.NewRegistry(&env.Setup, func() { env.Loop.Post(p.childChanged) }) // for sessions
	p.outliers = outlier.New(&env, before)
	return p
}

// Update sets the configuration.
func (p *Policy) Update(c *Config) {
	before := p.config
	p.config = c
	if c.Cluster != before.Cluster {
		p.labels = LabelsOf(p.env.Cluster, c.Cluster)
	}
	switch {
	case c.Err != nil:
		p.end()
	case c.known() && !(before.known() && c.Cluster == before.Cluster && c.Endpoints == before.Endpoints && c.Notes == before.Notes):
		p.serve(c)
	}
}

// State is the state of the priorities. A cluster that drops all RPCs does so whatever its endpoints do: the State is READY, so that an
// aggregate cluster does not go on to the next one. While resources are awaited RPCs do not use endpoints of the old ones. Their connections
// are kept, as the new ones may have the same endpoints.
func (p *Policy) State() balancer.State {
	var s balancer.State
	gate := p.gate
	switch {
	case p.config.Err != nil:
		s, gate = tree.Failing(p.config.Err, p.config.Notes), nil
	case !p.config.known():
		s, gate = tree.Waiting(connectivity.Connecting), nil
	case p.err != nil:
		s, gate = tree.Failing(p.err, p.config.Notes), nil
	case p.priorities == nil:
		s = tree.Failing(errOnlySessions, nil)
	default:
		s = p.priorities.State()
	}
	if gate != nil && gate.dropsAll {
		s.ConnectivityState = connectivity.Ready
	}
	s.Picker = &picker{s.Picker, p.labels, gate}
	return s
}

func (p *Policy) ExitIdle() {
	if p.priorities != nil {
		p.priorities.ExitIdle()
	}
}

func (p *Policy) Close() {
	p.config = new(Config)
	p.end()
}

// end ends what serves the cluster, until there are endpoints again.
func (p *Policy) end() {
	p.env.Endpoints.Update(conns.Config{}) // Before the policies, whose connections it would keep for sessions.
	p.closePriorities()
	p.loads.Release()
	p.gate, p.loads = nil, nil
	p.outliers.Close()
}

func (p *Policy) closePriorities() {
	if p.priorities != nil {
		p.priorities.Close()
		p.priorities = nil
	}
}

func (p *Policy) serve(c *Config) {
	entries := p.names.entries(c.Cluster, c.Endpoints)
	p.err = nil
	if len(entries) == 0 && !keepsSessions(c) && !c.Endpoints.DropsAll() {
		p.err = fmt.Errorf("dynxds: cluster %s has no endpoint to send RPCs to: "+
			"ClusterLoadAssignment %s has none that is HEALTHY or UNKNOWN, in a locality with a weight", bounds.Quote(p.env.Cluster), bounds.Quote(c.Endpoints.Name))
		p.end()
		return
	}
	if n := tooMany(c.Cluster.LBPolicy, entries); n > 0 && !p.warned {
		p.warned = true
		logger.Warningf("a priority of cluster %s has %d endpoints, and its policy %s connects to each: let a client use some of them, "+
			"by RandomSubsetting (gRFC A68) around the policy, or use ring hash or Maglev", p.env.Cluster, n, c.Cluster.LBPolicy)
	}
	before := p.loads
	p.loads = nil
	if l := c.Cluster.Load; l != nil {
		p.loads = l.Loads.Use(load.Key{Cluster: p.env.Cluster, Service: l.Service}, l.Metrics)
	}
	p.gate = p.newGate(c, traffic.Use(traffic.Key{Cluster: p.env.Cluster, Service: c.Cluster.EDSServiceName}))
	// Before the policies get the endpoints: this decides which of the connections that they
	// abandon are kept for sessions.
	p.outliers.Update(c.Cluster.Outliers, c.Endpoints.Localities, usedOf(c.Cluster, entries))
	p.env.Endpoints.Update(conns.Config{
		Localities: c.Endpoints.Localities, HealthOf: p.outliers.HealthOf, Loads: p.loads,
		Sessions: c.Cluster.Sessions, HealthCheck: c.Cluster.HealthCheck,
	})
	before.Release() // Only now: load reports must not stop in between.
	if len(entries) == 0 {
		p.closePriorities()
	} else {
		if p.priorities == nil {
			p.priorities = priority.New(p.env, p.newLocalities, p.childChanged)
		}
		p.priorities.Update(entries)
	}
}

// keepsSessions reports whether sessions may use an endpoint, if nothing else may.
func keepsSessions(c *Config) bool {
	for i := range c.Endpoints.Localities {
		for _, e := range c.Endpoints.Localities[i].Endpoints {
			if c.Cluster.Sessions.Statuses.Has(e.Health) {
				return true
			}
		}
	}
	return false
}

// resolveNow is called for connections.
func (p *Policy) resolveNow() {
	if f := p.config.ResolveNow; f != nil {
		f()
	}
}

// limitAs has the drops and limits of a later configuration apply, which another Policy gets ready for.
func (p *Policy) limitAs(c *Config) {
	if p.gate != nil && p.config.known() && c.known() {
		p.gate = p.newGate(c, p.gate.counter)
	}
}

func (p *Policy) newLocalities(_ string, changed func()) tree.Configured[locality.Config] {
	return locality.New(p.env, p.need.leafPolicy, p.need.across, changed)
}

// childChanged is called when the state of the priorities or of the sessions has changed. While resources are awaited, RPCs do not
// go to them.
func (p *Policy) childChanged() {
	if p.err == nil && p.config.known() {
		p.changed()
	}
}

// errOnlySessions is for RPCs without a session.
var errOnlySessions = errors.New("none of its endpoints is HEALTHY or UNKNOWN; those that it has are for sessions only")
