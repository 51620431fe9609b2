package load

import (
	"sync/atomic"
	"time"
)

// MaxCategories is how many categories of drops of a cluster are reported separately.
const MaxCategories = 100

// Cluster counts the load of one Key. A nil Cluster counts nothing.
type Cluster struct {
	store *Store
	key   Key

	// The following is guarded by Store.mu.

	users int
	// quiet counts the times in a row that there was nothing to report since the last user
	// left.
	quiet int
	// since is where the next Report begins.
	since time.Time
	// drops are by category, those without one under the empty name.
	drops      map[string]*Drops
	localities map[LocalityID]*Locality
	// left counts the localities without users.
	left int
	// unsent is what was put back, or nil.
	unsent *Report
}

func newCluster(s *Store, k Key) *Cluster {
	return &Cluster{
		store:      s,
		key:        k,
		since:      time.Now(),
		drops:      map[string]*Drops{"": new(Drops)},
		localities: make(map[LocalityID]*Locality),
	}
}

// Drops counts RPCs that were dropped for one reason. A nil Drops counts nothing.
type Drops struct {
	count    atomic.Uint64
	reported uint64 // guarded by Store.mu
}

// Count counts one more. It takes no lock.
func (d *Drops) Count() {
	if d != nil {
		d.count.Add(1)
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

// Locality returns the counters of a locality until ReleaseLocality. All users of the locality
// share them.
func (c *Cluster) Locality(id LocalityID) *Locality {
	if c == nil {
		return nil
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	l := c.localities[id]
	switch {
	case l == nil:
		l = newLocality(id)
		c.localities[id] = l
	case l.users == 0:
		c.left--
	}
	l.users++
	l.quiet = 0
	return l
}

// ReleaseLocality ends the use of a Locality of the cluster. RPCs in flight are still counted.
func (c *Cluster) ReleaseLocality(l *Locality) {
	if c == nil {
		return
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if l.users--; l.users == 0 {
		c.left++
		c.evict()
	}
}

// The following is called with Store.mu held.

// evict removes a locality without users if there are too many. Those with RPCs in flight stay.
func (c *Cluster) evict() {
	if c.left <= maxLeft {
		return
	}
	for id, l := range c.localities {
		if l.users == 0 && l.counts().InProgress == 0 {
			c.drop(id)
			return
		}
	}
}

// drop removes a locality without users.
func (c *Cluster) drop(id LocalityID) {
	delete(c.localities, id)
	c.left--
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

// takeReport returns what happened since the last Report that was not put back, nil if nothing did.
func (c *Cluster) takeReport(now time.Time) *Report {
	r := Report{Key: c.key, Interval: now.Sub(c.since)}
	c.since = now
	for category, d := range c.drops {
		n := d.count.Load()
		r.addDrops(category, n-d.reported)
		d.reported = n
	}
	for id, l := range c.localities {
		switch lr := l.takeReport(); {
		case lr != nil:
			r.Localities = append(r.Localities, lr)
		case l.users == 0 && l.quiet >= quietEnough:
			c.drop(id)
		}
	}
	if c.unsent != nil {
		r.merge(c.unsent)
		c.unsent = nil
	}
	if r.empty() {
		return nil
	}
	found := r // r itself stays on the stack, for the clusters without a report
	return &found
}

// quietEnough is how many Takes must find nothing before what is not used any more is removed.
// One is not enough: a picker that was just replaced may start one more RPC.
const quietEnough = 2

// spent reports whether the cluster, whose report was r, can be removed.
func (c *Cluster) spent(r *Report) bool {
	if c.users > 0 || r != nil {
		c.quiet = 0
		return false
	}
	c.quiet++
	return c.quiet >= quietEnough
}

func (c *Cluster) putBack(r *Report) {
	c.since = c.since.Add(-r.Interval)
	if c.unsent == nil {
		c.unsent = r
		return
	}
	c.unsent.merge(r)
}
