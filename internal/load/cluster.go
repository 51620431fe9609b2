package load

import (
	"sync/atomic"
	"time"
)

// MaxCategories is how many categories of drops of a cluster are reported separately.
const MaxCategories = 100

// Cluster is one use of the counters of a Key, which all its users share. A nil Cluster counts nothing.
type Cluster struct {
	store *Store
	*account
	elsewhere *Locality
	// localities are those that the user has now. Store.mu guards them.
	localities []*Locality
}

// account has what is counted of one Key. Store.mu guards it, but for which, which RPCs read.
type account struct {
	// since is when the next Report begins.
	since time.Time
	// which selects from the metrics of backends, as the last user wanted.
	which atomic.Pointer[Metrics]
	// users counts the Clusters in use. Without any there are still RPCs in flight, or something that was not reported yet.
	users int
	// drops are by category, those without one under the empty name.
	drops map[string]*Drops
	byID  map[LocalityID]*Locality
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
	return c.dropsOf(category)
}

// Localities returns the counters of the localities that the user has from now on, which the caller must not change. RPCs that are under way
// in others, or begin there in the next moment, are still counted.
func (c *Cluster) Localities(ids []LocalityID) []*Locality {
	if c == nil {
		return make([]*Locality, len(ids))
	}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	before := c.localities
	c.localities = make([]*Locality, len(ids))
	for i, id := range ids {
		c.localities[i] = c.use(id)
	}
	c.leave(before...)
	return c.localities
}

// Elsewhere returns the counters of RPCs to addresses that are in no locality.
func (c *Cluster) Elsewhere() *Locality {
	if c == nil {
		return nil
	}
	return c.elsewhere
}

// SetElsewhere sets how many RPCs are in flight in other processes, whose reports are passed on by PutBack. c is not nil.
func (c *Cluster) SetElsewhere(inProgress map[LocalityID]uint64) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	for id := range inProgress {
		c.locality(id)
	}
	for id, l := range c.byID {
		l.elsewhere = inProgress[id]
	}
	c.evict()
}

// The following is called with Store.mu held.

func (a *account) dropsOf(category string) *Drops {
	if a.drops[category] == nil && len(a.drops) > MaxCategories {
		category = ""
	}
	d := a.drops[category]
	if d == nil {
		d = new(Drops)
		a.drops[category] = d
	}
	return d
}

// locality returns the counters of a locality, if need be new ones, which have no users.
func (a *account) locality(id LocalityID) *Locality {
	l := a.byID[id]
	if l == nil {
		l = &Locality{account: a, id: id}
		a.byID[id] = l
	}
	l.quiet = 0
	return l
}

func (a *account) use(id LocalityID) *Locality {
	l := a.locality(id)
	l.users++
	return l
}

func (a *account) leave(all ...*Locality) {
	for _, l := range all {
		l.users--
	}
	a.evict()
}

// evict removes localities without users if there are too many. Those with RPCs in flight stay.
func (a *account) evict() {
	for id, l := range a.byID {
		if len(a.byID) > maxLeft && l.users == 0 && l.counts().InProgress == 0 {
			delete(a.byID, id)
		}
	}
}

// inProgress reports whether there are RPCs in flight.
func (a *account) inProgress() bool {
	for _, l := range a.byID {
		if l.counts().InProgress > 0 {
			return true
		}
	}
	return false
}

// quietEnough is how many Takes must find nothing before what is not used any more is removed.
// One is not enough: a picker that was just replaced may start one more RPC.
const quietEnough = 2

// take moves what happened since the last Report to r.
func (a *account) take(r *Report) {
	for category, d := range a.drops {
		n := d.unreported.Swap(0)
		if r.TotalDropped += n; n > 0 && category != "" {
			if r.Dropped == nil {
				r.Dropped = make(map[string]uint64)
			}
			r.Dropped[category] = n
		}
	}
	for id, l := range a.byID {
		switch found := l.take(); {
		case found != nil:
			l.quiet = 0
			r.Localities = append(r.Localities, found)
		case l.users == 0:
			if l.quiet++; l.quiet >= quietEnough {
				delete(a.byID, id)
			}
		}
	}
}

// putBack counts what r has again. The RPCs in flight are counted anyway.
func (a *account) putBack(r *Report) {
	others := r.TotalDropped
	for category, n := range r.Dropped {
		a.dropsOf(category).unreported.Add(n)
		others -= n
	}
	a.dropsOf("").unreported.Add(others)
	for _, l := range r.Localities {
		a.locality(l.ID).unsent.putBack(l)
	}
	a.evict()
}
