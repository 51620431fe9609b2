package conns

import (
	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Loads counts the RPCs of a cluster for load reports (LRS), by locality. All but the
// Targets is for one goroutine. A nil Loads counts nothing.
type Loads struct {
	cluster *load.Cluster
	metrics *load.Metrics
	targets map[load.LocalityID]*Target
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

// NewLoads returns Loads that count by c, and sum up the backend metrics that m names.
func NewLoads(c *load.Cluster, m *load.Metrics) *Loads {
	l := &Loads{cluster: c, metrics: m, targets: make(map[load.LocalityID]*Target)}
	l.elsewhere = l.target(load.LocalityID{})
	return l
}

// CountsBy reports whether l counts by c and m.
func (l *Loads) CountsBy(c *load.Cluster, m *load.Metrics) bool {
	return l != nil && l.cluster == c && l.metrics == m
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
		t = &Target{locality: l.cluster.Locality(id), metrics: l.metrics, loads: l}
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

// Close ends the use of the localities. RPCs in flight are still counted.
func (l *Loads) Close() {
	if l == nil {
		return
	}
	for _, t := range l.targets {
		l.cluster.ReleaseLocality(t.locality)
	}
	l.targets = nil
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
