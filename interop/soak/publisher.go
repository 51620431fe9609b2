package soak

import (
	"maps"
	"slices"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// publisher draws and publishes the configurations of a run.
type publisher struct {
	*mesh
	draw
	t       testing.TB
	history history
	// newest is the configuration that was published last.
	newest *config
	// lying says that the control plane lies at times in this round.
	lying bool
}

// publish makes a configuration the newest.
func (p *publisher) publish(c *config) {
	p.newest = c
	p.history.publish(c)
	p.store(c)
}

// store puts the resources of a configuration into the store. Resources that the
// configuration no longer has stay there while clients may still use them.
func (p *publisher) store(c *config) {
	p.update(func(tx *controlplane.Tx) { c.put(tx, p.addr) })
}

func (p *publisher) update(f func(tx *controlplane.Tx)) {
	_, err := p.control.Store().Update(f)
	p.must(err)
}

func (p *publisher) must(err error) {
	xdstest.NoError(p.t, err)
}

// change publishes the newest configuration with a change. In a round with lies it must
// not name a resource that clients may not have yet: a lie would be the first answer for
// it, an error, and routes that wait for the resource would take effect without it.
func (p *publisher) change(f func(c *config)) bool {
	next := p.newest.clone()
	f(next)
	next.prune()
	if p.lying && !p.known(next) {
		return false
	}
	p.publish(next)
	return true
}

// known reports whether every client has all resources of the configuration. Clients do
// not change lanes in a round with lies, so routes stay in their resource, whose type has
// a lane of its own. Resources that clients unsubscribed from may be forgotten.
func (p *publisher) known(c *config) bool {
	if c.inline != p.newest.inline {
		return false
	}
	for _, l := range allLanes {
		has := p.newest.keys(l)
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
func (p *publisher) reroute(c *config) {
	p.routes(c, func(l lane) []string {
		all := slices.Sorted(maps.Keys(c.clusters))
		if !p.lying {
			return all
		}
		has := slices.DeleteFunc(p.newest.used(l), func(name string) bool { return !slices.Contains(all, name) })
		if len(has) == 0 {
			return all // change refuses it
		}
		return has
	})
}

func (p *publisher) changeCluster(f func(old clusterSpec, name string) clusterSpec) bool {
	names := slices.Sorted(maps.Keys(p.newest.clusters))
	name := names[p.IntN(len(names))]
	return p.change(func(c *config) { c.clusters[name] = f(c.clusters[name], name) })
}

func (p *publisher) addCluster() bool {
	name := clusterNames[p.IntN(len(clusterNames))]
	drawn := p.cluster(name)
	if _, ok := p.newest.clusters[name]; ok || p.lying {
		return false
	}
	return p.change(func(c *config) {
		c.version++
		c.clusters[name] = drawn
		p.reroute(c)
	})
}

func (p *publisher) dropCluster() bool {
	names := slices.Sorted(maps.Keys(p.newest.clusters))
	name := names[p.IntN(len(names))]
	if len(names) == 1 {
		return false
	}
	return p.change(func(c *config) {
		c.version++
		delete(c.clusters, name)
		p.reroute(c)
	})
}
