package cluster

import (
	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/balancer/internal/switchover"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/clustertls"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Graceful serves one cluster by the policy that it needs: that of an aggregate cluster or of a plugin, or else a Policy over
// connections that are secured as its Cluster asks (gRFC A29), and made through proxies if it asks for that (gRFC A86).
//
// When that changes, another policy takes over, whose connections are its own. If the Cluster gets stricter, no
// RPC goes over the old connections any more, and streams that are open end with these, after the time for
// which connections linger. Otherwise the policy before serves until the new one can, so that no RPC waits, but
// not for longer than connections linger if these are made in another way:
//
//	the Cluster accepted servers "a" and "b", now only "a": RPCs wait for new connections
//	the Cluster accepted servers "a", now "a" and "b": RPCs go over the old connections until the new ones are ready
//	the Cluster sends another server name that is not verified: likewise
//
// An error ends everything that has served the cluster.
type Graceful struct {
	env     *tree.Env
	name    string
	plugin  func(c *Config, changed func()) tree.Configured[*Config]
	changed func()

	policies *switchover.Policy[*Config, need]
	// cluster is the last Cluster that was known, before that an empty one, and need is what the connections of that Cluster need.
	cluster *xdsresource.Cluster
	need    need
	// deadline runs while a policy serves whose connections are made in another way. Otherwise it is nil.
	deadline *tree.Timer
}

// need is what a cluster needs a policy of its own for: one that is not a Policy, or other connections.
type need struct {
	other bool
	key   clustertls.Key
}

// NewGraceful returns the policy of the named cluster, which has to be updated at once. plugin makes the policy of a plugin; nil: the cluster is
// no plugin.
func NewGraceful(env *tree.Env, name string, plugin func(c *Config, changed func()) tree.Configured[*Config], changed func()) *Graceful {
	g := &Graceful{env: env, name: name, plugin: plugin, changed: changed, cluster: new(xdsresource.Cluster)}
	g.policies = switchover.New(func(*Config) need { return g.need }, g.mayOverlap, g.build, g.policyChanged)
	return g
}

// securedPolicy is a Policy with connections of its own.
type securedPolicy struct {
	*Policy
	graceful *Graceful
	key      clustertls.Key
	security *xdsresource.Security // of its connections
	bundle   *clustertls.Bundle    // nil: they have the credentials of the channel
	release  func()
}

func (p securedPolicy) Close() {
	if p.graceful.env.TLS.Stricter(p.security, p.graceful.cluster.Security) {
		p.bundle.Outdate()
	}
	p.Policy.Close()
	p.release()
}

func (g *Graceful) build(c *Config, changed func()) tree.Configured[*Config] {
	switch {
	case g.need.other && g.cluster.Kind == xdsresource.ClusterPlugin:
		return g.plugin(c, changed)
	case g.need.other:
		return newAggregate(g.env, g.name, changed)
	}
	p := securedPolicy{graceful: g, key: g.need.key, security: g.cluster.Security}
	env := *g.env
	p.bundle, p.release = g.env.TLS.Acquire(g.name, g.cluster)
	env.Bundle = p.bundle
	p.Policy = New(&env, g.name, changed)
	return p
}

// stricter reports whether the Cluster, or one under it, asks for more than connections may have that are secured in another way.
func (g *Graceful) stricter(c *Config, than *xdsresource.Security) bool {
	if c.Underlying != nil {
		for _, u := range c.Underlying.States.All {
			if g.stricter(u, than) {
				return true
			}
		}
	}
	return c.Cluster != nil && g.env.TLS.Stricter(than, c.Cluster.Security)
}

// Update applies a new state of the cluster.
func (g *Graceful) Update(c *Config) {
	if c.Cluster != nil {
		g.cluster = c.Cluster
	}
	// The policies of plugins know no errors.
	other := g.cluster.Kind == xdsresource.ClusterAggregate || g.cluster.Kind == xdsresource.ClusterPlugin && c.Err == nil
	g.need = need{other, g.env.TLS.Key(g.name, g.cluster)}
	g.policies.Update(c)
	g.setDeadline()
}

// mayOverlap reports whether the policy that serves may go on until the policy for a configuration can serve.
func (g *Graceful) mayOverlap(c *Config) bool {
	// While its endpoints are not known, a Policy has RPCs wait, whichever connections it has.
	serving, secured := g.policies.Serving().(securedPolicy)
	known := secured == g.need.other || c.Endpoints != nil
	return known && c.Usable() && !g.stricter(c, serving.security)
}

func (g *Graceful) policyChanged() {
	g.setDeadline()
	g.changed()
}

// setDeadline has the deadline run while it is due.
func (g *Graceful) setDeadline() {
	serving, _ := g.policies.Serving().(securedPolicy)
	switch {
	case !g.policies.Switching() || serving.key == g.need.key:
		g.stopDeadline()
	case g.deadline == nil:
		g.deadline = g.env.Loop.After(g.env.Pool.Linger(), func() {
			g.policies.Finish()
			g.policyChanged()
		})
	}
}

func (g *Graceful) stopDeadline() {
	g.deadline.Stop()
	g.deadline = nil
}

func (g *Graceful) State() balancer.State { return g.policies.State() }

func (g *Graceful) ExitIdle() { g.policies.ExitIdle() }

func (g *Graceful) Close() {
	g.stopDeadline()
	g.policies.Close()
}

// Inspect describes the cluster for diagnostics.
func (g *Graceful) Inspect() inspect.Cluster {
	d := g.policies.Serving().(interface{ Inspect() inspect.Cluster }).Inspect()
	d.Switching = d.Switching || g.policies.Switching()
	return d
}
