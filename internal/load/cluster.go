package load

import "sync/atomic"

// MaxCategories is how many categories of drops of a cluster are reported separately.
const MaxCategories = 100

// Cluster counts the load of one Key for one user. A nil Cluster counts nothing.
type Cluster struct {
	store *Store
	key   Key
	which *Metrics

	// The following is guarded by Store.mu.

	released bool
	round    uint64 // counts the changes of localities
	// drops are by category, those without one under the empty name.
	drops      map[string]*Drops
	localities map[LocalityID]*Locality
}

// Drops counts RPCs that were dropped for one reason. A nil Drops counts nothing.
type Drops struct{ unreported atomic.Uint64 }

// Count counts one more. It takes no lock.
func (d *Drops) Count() {
	if d != nil {
		d.unreported.Add(1)
	}
}

// Drops returns the count of RPCs dropped for a category of drop_overloads. The empty category
// is for other reasons, such as circuit breaking, which are part of the total only.
func (c *Cluster) Drops(category string) *Drops {
	if c == nil {
		return nil
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if c.drops[category] == nil && len(c.drops) > MaxCategories {
		category = ""
	}
	d := c.drops[category]
	if d == nil {
		d = new(Drops)
		c.drops[category] = d
	}
	return d
}

// Localities returns the counters of the localities that the cluster has from now on. RPCs that are under way in others, or begin
// there in the next moment, are still counted.
func (c *Cluster) Localities(ids []LocalityID) []*Locality {
	if c == nil {
		return nil
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	c.round++
	all := make([]*Locality, len(ids))
	for i, id := range ids {
		all[i] = c.localityLocked(id)
	}
	c.evictLocked()
	return all
}

// Elsewhere returns the counters of RPCs to addresses that are in no locality.
func (c *Cluster) Elsewhere() *Locality {
	if c == nil {
		return nil
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	return c.localityLocked(LocalityID{})
}

// Has reports whether l is of c.
func (c *Cluster) Has(l *Locality) bool { return l != nil && l.cluster == c }

// The following is called with Store.mu held.

func (c *Cluster) localityLocked(id LocalityID) *Locality {
	l := c.localities[id]
	if l == nil {
		l = &Locality{cluster: c, id: id}
		c.localities[id] = l
	}
	l.round, l.quiet = c.round, 0
	return l
}

// retireLocked ends the use of the cluster.
func (c *Cluster) retireLocked() {
	c.released = true
	c.round++
	c.evictLocked()
}

// evictLocked removes localities that are not used any more if there are too many. Those with RPCs in flight stay.
func (c *Cluster) evictLocked() {
	for id, l := range c.localities {
		if l.round != c.round {
			l.elsewhere.Store(0)
		}
		if len(c.localities) > maxLeft && l.retired() && l.counts().InProgress == 0 {
			delete(c.localities, id)
		}
	}
}

// inProgress reports whether there are RPCs in flight.
func (c *Cluster) inProgress() bool {
	for _, l := range c.localities {
		if l.counts().InProgress > 0 {
			return true
		}
	}
	return false
}

// takeInto moves what happened since the last Report to r.
func (c *Cluster) takeInto(r *Report) {
	for category, d := range c.drops {
		r.addDrops(category, d.unreported.Swap(0))
	}
	for id, l := range c.localities {
		switch found := l.takeReport(); {
		case found != nil:
			l.quiet = 0
			r.addLocality(found)
		case l.retired():
			if l.quiet++; l.quiet >= quietEnough {
				delete(c.localities, id)
			}
		}
	}
}

// quietEnough is how many Takes must find nothing before what is not used any more is removed.
// One is not enough: a picker that was just replaced may start one more RPC.
const quietEnough = 2

// spent reports whether nothing can be counted any more.
func (c *Cluster) spent() bool { return c.released && len(c.localities) == 0 }
