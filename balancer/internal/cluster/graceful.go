package cluster

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/outlier"
	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/clustertls"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Graceful serves one cluster by the policy that it needs: that of an aggregate cluster or of a plugin, or else a Policy over
// connections that are secured as its Cluster asks (gRFC A29), and made through proxies if it asks for that (gRFC A86).
//
// When that changes, or the load-balancing policy of the Cluster does, another policy takes over, whose connections are its own. If the
// Cluster gets stricter, no RPC goes over the old connections any more, and streams that are open end with these, after the time for
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

	// cluster is the last Cluster that was known, before that an empty one.
	cluster *xdsresource.Cluster
	serving *child // nil before the first Update
	next    *child // nil unless a child gets ready to serve
	// deadline is pending while a child serves whose connections are made in another way.
	deadline tree.Timer
}

// need is what a cluster needs a policy of its own for: one that is not a Policy, or other connections, or another policy over these.
type need struct {
	other      bool
	key        clustertls.Key
	leafPolicy string
	across     bool // all localities
}

// child is a policy of the cluster.
type child struct {
	tree.Configured[*Config]
	need need

	// The rest is of a Policy.

	security *xdsresource.Security // of its connections
	bundle   *clustertls.Bundle    // nil: they have the credentials of the channel
	release  func()
}

// NewGraceful returns the policy of the named cluster, which has to be updated at once. plugin makes the policy of a plugin; nil: the cluster is
// no plugin.
func NewGraceful(env *tree.Env, name string, plugin func(c *Config, changed func()) tree.Configured[*Config], changed func()) *Graceful {
	return &Graceful{env: env, name: name, plugin: plugin, changed: changed, cluster: new(xdsresource.Cluster)}
}

func (g *Graceful) create(n need, c *Config) *child {
	k := &child{need: n, release: func() {}}
	changed := func() { g.childChanged(k) }
	switch {
	case n.other && g.cluster.Kind == xdsresource.ClusterPlugin:
		k.Configured = g.plugin(c, changed)
	case n.other:
		k.Configured = newAggregate(g.env, g.name, changed)
	default:
		k.security = g.cluster.Security
		k.bundle, k.release = g.env.TLS.Acquire(g.name, g.cluster)
		var before *outlier.Detector
		if g.serving != nil {
			if serving, ok := g.serving.Configured.(*Policy); ok {
				before = serving.outliers
			}
		}
		k.Configured = newPolicy(g.env, g.name, n, k.bundle, before, changed)
	}
	k.Update(c)
	return k
}

// close closes a child, which may be nil.
func (g *Graceful) close(k *child) {
	if k == nil {
		return
	}
	if g.env.TLS.Stricter(k.security, g.cluster.Security) {
		k.bundle.Outdate()
	}
	k.Close()
	k.release()
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
	var n need
	// The policies of plugins know no errors.
	n.other = g.cluster.Kind == xdsresource.ClusterAggregate || g.cluster.Kind == xdsresource.ClusterPlugin && c.Err == nil
	if !n.other {
		n.key, n.leafPolicy, n.across = g.env.TLS.Key(g.name, g.cluster), g.cluster.LBPolicy, g.cluster.AcrossLocalities
	}
	switch {
	case g.serving == nil:
		g.serving = g.create(n, c)
	case g.next != nil && g.next.need == n:
		g.next.Update(c)
	default:
		g.close(g.next)
		if g.next = nil; g.serving.need == n {
			g.serving.Update(c)
		} else {
			g.next = g.create(n, c)
		}
	}
	if g.next != nil && !g.mayOverlap(c) {
		g.finish()
	}
	if serving, ok := g.serving.Configured.(*Policy); ok && g.next != nil {
		serving.limitAs(c)
	}
	g.settle()
}

// mayOverlap reports whether the policy that serves may go on until the policy for a configuration can serve. If no endpoint is usable,
// there is nothing that it could wait for.
func (g *Graceful) mayOverlap(c *Config) bool {
	// While its endpoints are not known, a Policy has RPCs wait, whichever connections it has.
	known := g.serving.need.other != g.next.need.other || c.Endpoints != nil
	return known && c.Usable() && !g.stricter(c, g.serving.security)
}

func (g *Graceful) childChanged(k *child) {
	before := g.serving
	g.settle()
	if k == g.serving || before != g.serving {
		g.changed()
	}
}

// settle replaces the child that serves if next can serve or the child cannot, and has the deadline run while it is due.
func (g *Graceful) settle() {
	if g.next != nil {
		s := g.next.State().ConnectivityState
		if s == connectivity.Ready || s == connectivity.Idle || g.serving.State().ConnectivityState != connectivity.Ready {
			g.finish()
		}
	}
	switch {
	case g.next == nil || g.next.need.key == g.serving.need.key:
		g.deadline.Stop()
	case !g.deadline.Pending():
		g.env.Loop.After(&g.deadline, g.env.Pool.Linger(), func() {
			g.finish()
			g.settle()
			g.changed()
		})
	}
}

// finish replaces the child that serves, whether or not next can serve yet.
func (g *Graceful) finish() {
	before := g.serving
	g.serving, g.next = g.next, nil
	g.close(before)
}

func (g *Graceful) State() balancer.State { return g.serving.State() }

func (g *Graceful) ExitIdle() {
	g.serving.ExitIdle()
	if g.next != nil {
		g.next.ExitIdle()
	}
}

func (g *Graceful) Close() {
	g.deadline.Stop()
	g.close(g.next)
	g.close(g.serving)
}

// Inspect describes the cluster for diagnostics.
func (g *Graceful) Inspect() inspect.Cluster {
	d := g.serving.Configured.(interface{ Inspect() inspect.Cluster }).Inspect()
	d.Switching = d.Switching || g.next != nil
	return d
}
