// Package loads maps the connections of a cluster to the localities for which their
// RPCs are counted in load reports (LRS).
//
// It counts nothing (package internal/load does) and reports nothing (xdsclient does). There is a
// Registry only for clusters whose load is reported. The cluster updates it on the
// tree's loop; connections look their Place up from anywhere.
package loads

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/balancer"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// Registry has the endpoints of one cluster by their addresses.
type Registry struct {
	cluster *load.Cluster
	metrics *load.Metrics

	mu     sync.Mutex
	places map[string]*Place
	// elsewhere is for connections to addresses that no endpoint has.
	elsewhere *Place
	targets   map[load.LocalityID]*Target
	// round numbers the updates.
	round uint64
}

// Place is where one address is. It changes when the endpoint moves to another
// locality; whoever has the Place sees that.
type Place struct {
	target atomic.Pointer[Target]
	round  uint64 // the last update that had the address; guarded by Registry.mu
}

// Target counts the RPCs to one locality. It is immutable. A nil Target counts
// nothing.
type Target struct {
	locality *load.Locality
	metrics  *load.Metrics
	round    uint64 // as in Place
}

// Target returns what to count an RPC by that begins now; nil for a nil Place.
func (p *Place) Target() *Target {
	if p == nil {
		return nil
	}
	return p.target.Load()
}

// Start counts an RPC that begins. It takes no lock.
func (t *Target) Start() {
	if t != nil {
		t.locality.Start()
	}
}

// End counts the end of an RPC that Start has counted. It takes no lock.
func (t *Target) End(info balancer.DoneInfo) {
	if t != nil {
		t.locality.End(info, t.metrics)
	}
}

// New returns a Registry without endpoints, which has RPCs counted by c, with those
// metrics of the backends that m says.
func New(c *load.Cluster, m *load.Metrics) *Registry {
	r := &Registry{cluster: c, metrics: m, places: make(map[string]*Place), targets: make(map[load.LocalityID]*Target)}
	r.elsewhere = &Place{}
	r.elsewhere.target.Store(r.target(load.LocalityID{}))
	return r
}

// Fits reports whether the Registry counts by c and m.
func (r *Registry) Fits(c *load.Cluster, m *load.Metrics) bool {
	return r != nil && r.cluster == c && r.metrics == m
}

// Update makes the endpoints those of the localities. What is as before costs a
// look and nothing else.
func (r *Registry) Update(localities []xdsresource.Locality) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.round++
	for i := range localities {
		t := r.target(load.LocalityID(localities[i].ID))
		for j := range localities[i].Endpoints {
			e := &localities[i].Endpoints[j]
			r.put(e.Address, t)
			for _, a := range e.Additional {
				r.put(a, t)
			}
		}
	}
	r.tidy()
}

func (r *Registry) put(addr string, t *Target) {
	p := r.places[addr]
	if p == nil {
		p = new(Place)
		r.places[addr] = p
	}
	p.round = r.round
	if p.target.Load() != t {
		p.target.Store(t)
	}
}

// target returns the Target of a locality.
func (r *Registry) target(id load.LocalityID) *Target {
	t := r.targets[id]
	if t == nil {
		t = &Target{locality: r.cluster.Locality(id), metrics: r.metrics}
		r.targets[id] = t
	}
	t.round = r.round
	return t
}

// tidy forgets what the last update did not have.
func (r *Registry) tidy() {
	for addr, p := range r.places {
		if p.round != r.round {
			delete(r.places, addr)
		}
	}
	for id, t := range r.targets {
		if t.round != r.round && t != r.elsewhere.Target() {
			r.cluster.ReleaseLocality(t.locality)
			delete(r.targets, id)
		}
	}
}

// At returns the Place of an address; nil for a nil Registry.
func (r *Registry) At(addr string) *Place {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.places[addr]; p != nil {
		return p
	}
	return r.elsewhere
}

// Close ends the use of the localities. RPCs on their way are still counted.
func (r *Registry) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.targets {
		r.cluster.ReleaseLocality(t.locality)
	}
	r.targets = nil
}
