package soak

import (
	"maps"
	"slices"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// publish makes a configuration the newest.
func (r *run) publish(c *config) {
	r.newest = c
	r.history.publish(c)
	r.store(c)
}

// store puts the resources of a configuration into the store. Resources that the
// configuration no longer has stay there while clients may still use them.
func (r *run) store(c *config) {
	r.update(func(tx *controlplane.Tx) { c.put(tx, r.addr) })
}

func (r *run) update(f func(tx *controlplane.Tx)) {
	_, err := r.control.Store().Update(f)
	r.must(err)
}

func (r *run) must(err error) {
	xdstest.NoError(r.t, err)
}

// change publishes the newest configuration with a change. In a round with lies it must
// not name a resource that clients may not have yet: a lie would be the first answer for
// it, an error, and routes that wait for the resource would take effect without it.
func (r *run) change(f func(c *config)) bool {
	next := r.newest.clone()
	f(next)
	next.prune()
	if r.lying && !r.known(next) {
		return false
	}
	r.publish(next)
	return true
}

// changeRoutes is change for a new version of the routes.
func (r *run) changeRoutes(f func(c *config)) bool {
	return r.change(func(c *config) {
		c.version++
		f(c)
	})
}

// known reports whether every client has all resources of the configuration. Clients do
// not change lanes in a round with lies, so routes stay in their resource, whose type has
// a lane of its own. Resources that clients unsubscribed from may be forgotten.
func (r *run) known(c *config) bool {
	if c.inline != r.newest.inline {
		return false
	}
	for _, l := range allLanes {
		has := r.newest.keys(l)
		for k := range c.keys(l) {
			if !has[k] {
				return false
			}
		}
	}
	return true
}

// reroute draws new routes; in a round with lies only to clusters that the lane already
// has.
func (r *run) reroute(c *config) {
	r.routes(c, func(l lane) []string {
		all := slices.Sorted(maps.Keys(c.clusters))
		if !r.lying {
			return all
		}
		has := slices.DeleteFunc(r.newest.used(l), func(name string) bool { return !slices.Contains(all, name) })
		if len(has) == 0 {
			return all // change refuses it
		}
		return has
	})
}

// changeCluster is the operation that gives a cluster something of one that is drawn.
func changeCluster(f func(s *clusterSpec, drawn clusterSpec)) func(*run) bool {
	return func(r *run) bool {
		names := slices.Sorted(maps.Keys(r.newest.clusters))
		name := names[r.IntN(len(names))]
		return r.change(func(c *config) {
			s := c.clusters[name]
			f(&s, r.cluster(name))
			c.clusters[name] = s
		})
	}
}

func (r *run) addCluster() bool {
	name := clusterNames[r.IntN(len(clusterNames))]
	drawn := r.cluster(name)
	if _, ok := r.newest.clusters[name]; ok || r.lying {
		return false
	}
	return r.changeRoutes(func(c *config) {
		c.clusters[name] = drawn
		r.reroute(c)
	})
}

func (r *run) dropCluster() bool {
	names := slices.Sorted(maps.Keys(r.newest.clusters))
	name := names[r.IntN(len(names))]
	if len(names) == 1 {
		return false
	}
	return r.changeRoutes(func(c *config) {
		delete(c.clusters, name)
		r.reroute(c)
	})
}
