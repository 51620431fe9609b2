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
	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

var logger = boundlog.Component("dynxds")

// Policy serves one cluster, whose Cluster has the same LBPolicy and AcrossLocalities in all Updates.
type Policy struct {
	env     *tree.Env
	name    string
	changed func()

	config *Config
	// labels are the telemetry labels of the cluster's RPCs.
	labels Labels
	err    error // why the cluster is unusable: a resource is missing, or has no endpoint to offer
	names  names
	// warned says that the cluster has too many endpoints, which is logged once.
	warned bool
	// part is the part of the tree that serves the cluster. It is nil until there are
	// endpoints, and after an error.
	part *tree.Env
	// priorities is nil if only sessions have endpoints to go to, or all RPCs are dropped.
	priorities *priority.Policy[locality.Config]
	// counter and loads count the cluster's RPCs, the latter for load reports. gate keeps
	// some RPCs out, and outliers ejects endpoints. They exist as long as part does.
	counter   *traffic.Counter
	reporting xdsresource.LoadReporting
	loads     *load.Cluster
	gate      *gate
	outliers  *outlier.Detector
	state     balancer.State
	// before is the Detector of the Policy before, whose ejections the first one of this Policy takes over, or nil.
	before *outlier.Detector
}

// newPolicy returns the Policy of the named cluster, whose RPCs wait until Update.
func newPolicy(env *tree.Env, name string, changed func()) *Policy {
	p := &Policy{env: env, name: name, changed: changed, config: new(Config), labels: LabelsOf(name, nil)}
	p.names.seed = rand.Uint64()
	p.setState(tree.Waiting(connectivity.Connecting))
	return p
}

// setState is for states in which no RPC has an endpoint.
func (p *Policy) setState(s balancer.State) {
	s.Picker = &picker{child: s.Picker, labels: p.labels}
	p.state = s
}

// Update sets the configuration.
func (p *Policy) Update(c *Config) {
	before := p.config
	p.config = c
	if c.Cluster != before.Cluster {
		p.labels = LabelsOf(p.name, c.Cluster)
	}
	switch {
	case c.Err != nil:
		p.fail(c.Err)
	case c.Cluster == nil || c.Endpoints == nil:
		// RPCs do not use endpoints of the old resource any more. Their connections are kept,
		// as the new resource may have the same endpoints.
		p.err = nil
		p.setState(tree.Waiting(connectivity.Connecting))
	case p.err == nil && c.Cluster == before.Cluster && c.Endpoints == before.Endpoints && c.Notes == before.Notes:
	default:
		p.serve(c)
	}
}

func (p *Policy) State() balancer.State { return p.state }

func (p *Policy) ExitIdle() {
	if p.priorities != nil {
		p.priorities.ExitIdle()
	}
}

func (p *Policy) Close() {
	if p.part == nil {
		return
	}
	p.part.Endpoints.Close() // Before the policies, whose connections it would keep for sessions.
	p.closePriorities()
	p.counter.Release()
	p.countLoads(xdsresource.LoadReporting{})
	p.outliers.Close()
	p.part, p.counter, p.gate, p.outliers = nil, nil, nil, nil
}

func (p *Policy) closePriorities() {
	if p.priorities != nil {
		p.priorities.Close()
		p.priorities = nil
	}
}

func (p *Policy) fail(err error) {
	p.Close()
	p.err = err
	p.setState(tree.Failing(err, p.config.Notes))
}

func (p *Policy) serve(c *Config) {
	entries := p.names.entries(c.Cluster, c.Endpoints)
	if len(entries) == 0 && !keepsSessions(c) && !c.Endpoints.DropsAll() {
		p.fail(fmt.Errorf("dynxds: cluster %s has no endpoint to send RPCs to: "+
			"ClusterLoadAssignment %s has none that is HEALTHY or UNKNOWN", bounds.Quote(p.name), bounds.Quote(c.Endpoints.Name)))
		return
	}
	if n := tooMany(c.Cluster.LBPolicy, entries); n > 0 && !p.warned {
		p.warned = true
		logger.Warningf("a priority of cluster %s has %d endpoints, and its policy %s connects to each: let a client use some of them, "+
			"by RandomSubsetting (gRFC A68) around the policy, or use ring hash or Maglev", p.name, n, c.Cluster.LBPolicy)
	}
	if p.part == nil {
		of := *p.env
		part := &of
		part.Cluster, part.ResolveNow = p.name, p.resolveNow
		changed := func() { // for sessions
			if p.part == part {
				p.childChanged()
			}
		}
		part.Endpoints = conns.NewRegistry(&part.Setup, func() { part.Loop.Post(changed) })
		p.part, p.outliers, p.before = part, outlier.New(part, p.before), nil
	}
	p.limit(c)
	// Before the policies get the endpoints: this decides which of the connections that they
	// abandon are kept for sessions.
	p.outliers.Update(c.Cluster.Outliers, c.Endpoints.Localities, usedOf(c.Cluster, entries))
	p.part.Endpoints.Update(conns.Config{
		Localities: c.Endpoints.Localities, HealthOf: p.outliers.HealthOf, Loads: p.loads,
		Sessions: c.Cluster.Sessions, HealthCheck: c.Cluster.HealthCheck,
	})
	if len(entries) == 0 {
		p.closePriorities()
	} else {
		if p.priorities == nil {
			p.priorities = priority.New(p.part, p.newLocalities, p.childChanged)
		}
		p.priorities.Update(entries)
	}
	p.err = nil
	p.refreshState()
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

// limit sets up the gate of the RPCs.
func (p *Policy) limit(c *Config) {
	before := p.counter
	p.counter = traffic.Use(traffic.Key{Cluster: p.name, Service: c.Cluster.EDSServiceName})
	if before != nil {
		before.Release()
	}
	var reporting xdsresource.LoadReporting
	if c.Cluster.Load != nil {
		reporting = *c.Cluster.Load
	}
	p.countLoads(reporting)
	p.gate = p.newGate(c)
}

// limitAs has the drops and limits of a later configuration apply, which another Policy gets ready for.
func (p *Policy) limitAs(c *Config) {
	if p.part != nil && p.config.Endpoints != nil && c.Cluster != nil && c.Endpoints != nil {
		p.gate = p.newGate(c)
		p.refreshState()
	}
}

// countLoads has the RPCs counted for load reports, if need be by new counters.
func (p *Policy) countLoads(r xdsresource.LoadReporting) {
	if r == p.reporting {
		return
	}
	before := p.loads
	p.reporting, p.loads = r, r.Loads.Use(load.Key{Cluster: p.name, Service: r.Service}, r.Metrics)
	before.Release() // Only now: reports must not stop in between.
}

func (p *Policy) newLocalities(_ string, changed func()) tree.Configured[locality.Config] {
	return locality.New(p.part, changed)
}

// childChanged is called when the state of the priorities or of the sessions has changed. While resources are awaited, RPCs do not
// go to them.
func (p *Policy) childChanged() {
	if p.err == nil && p.config.Cluster != nil && p.config.Endpoints != nil {
		p.refreshState()
		p.changed()
	}
}

// refreshState makes the priorities' state the cluster's. A cluster that drops all RPCs does so whatever its endpoints
// do: it is READY, so that an aggregate cluster does not go on to the next one.
func (p *Policy) refreshState() {
	s := tree.Failing(errOnlySessions, nil)
	if p.priorities != nil {
		s = p.priorities.State()
	}
	if p.gate.dropsAll {
		s.ConnectivityState = connectivity.Ready
	}
	p.state = balancer.State{ConnectivityState: s.ConnectivityState, Picker: &picker{s.Picker, p.labels, p.gate}}
}

// errOnlySessions is for RPCs without a session.
var errOnlySessions = errors.New("none of its endpoints is HEALTHY or UNKNOWN; those that it has are for sessions only")
