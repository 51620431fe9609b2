package conns

import (
	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Loads counts the RPCs of a cluster for load reports (LRS), by locality. All but the
// Targets is for one goroutine. A nil Loads counts nothing.
type Loads struct {
	name      string
	reporting xdsresource.LoadReporting
	cluster   *load.Cluster
	targets   map[load.LocalityID]*Target
	// elsewhere is for connections to addresses that no endpoint has.
	elsewhere *Target
	round     uint64 // counts the updates
}

// Target counts the RPCs to one locality. A nil Target counts nothing.
type Target struct {
	locality *load.Locality
	metrics  *load.Metrics
	loads    *Loads
	round    uint64 // the last update that had the locality
}

// Update returns what counts the RPCs of a cluster: l if it still does as c asks, nil if the load is not reported. If it is
// not l, that ends. l may be nil.
func (l *Loads) Update(c *xdsresource.Cluster) *Loads {
	var now *Loads
	switch {
	case c.Load == nil || c.Load.Loads == nil:
	case l != nil && l.name == c.Name && l.reporting == *c.Load:
		return l
	default:
		now = &Loads{name: c.Name, reporting: *c.Load, targets: make(map[load.LocalityID]*Target)}
		now.cluster = c.Load.Loads.Use(load.Key{Cluster: c.Name, Service: c.Load.Service})
		now.elsewhere = now.target(load.LocalityID{})
	}
	l.Close() // Only now: reports must not stop in between.
	return now
}

// Drops returns the counter of a category of drops, see load.Cluster.Drops. nil: they are not reported.
func (l *Loads) Drops(category string) *load.Drops {
	if l == nil {
		return nil
	}
	return l.cluster.Drops(category)
}

// open returns the Targets of the localities, in their order. releaseUnused releases
// those of other localities.
func (l *Loads) open(localities []xdsresource.Locality) []*Target {
	if l == nil {
		return nil
	}
	l.round++
	targets := make([]*Target, len(localities))
	for i := range localities {
		targets[i] = l.target(load.LocalityID(localities[i].ID))
	}
	return targets
}

func (l *Loads) target(id load.LocalityID) *Target {
	t := l.targets[id]
	if t == nil {
		t = &Target{locality: l.cluster.Locality(id), metrics: l.reporting.Metrics, loads: l}
		l.targets[id] = t
	}
	t.round = l.round
	return t
}

func (l *Loads) releaseUnused() {
	if l == nil {
		return
	}
	for id, t := range l.targets {
		if t.round != l.round && t != l.elsewhere {
			l.cluster.ReleaseLocality(t.locality)
			delete(l.targets, id)
		}
	}
}

// Close ends the reports of the cluster. RPCs in flight are still counted.
func (l *Loads) Close() {
	if l == nil {
		return
	}
	for _, t := range l.targets {
		l.cluster.ReleaseLocality(t.locality)
	}
	l.targets = nil
	l.cluster.Release()
}

// start counts an RPC that starts. It takes no lock.
func (t *Target) start() {
	if t != nil {
		t.locality.Start()
	}
}

// finish counts the end of an RPC that start has counted. It takes no lock.
func (t *Target) finish(info balancer.DoneInfo) {
	if t != nil {
		t.locality.End(info, t.metrics)
	}
}
