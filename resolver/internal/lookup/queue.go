package lookup

import (
	"cmp"
	"slices"

	"github.com/dynxds/dynxds/internal/bounds"
)

// queue has the names that wait for a look-up, by cluster. A free place goes to the cluster with the fewest
// look-ups under way, and among these to the one that has waited longest. A cluster that has none under way
// gets a place of a reserve if no other is free:
//
//	cluster a has 1,000 names that DNS does not answer:  100 look-ups are under way, 900 names wait
//	cluster b wants one name looked up:                  that begins at once, in the reserve
//	cluster c has 2 names:                               one begins at once, the other one when the first ends
//
// Guarded by mu.
var queue = struct {
	groups  map[string]*group // by cluster, those with names that wait or are looked up
	waiting []*group          // those with names that wait; the last one had the last turn, or has come last
	running int
}{groups: make(map[string]*group)}

// group has the names of one cluster. Guarded by mu.
type group struct {
	cluster string
	names   []*lookup // in order; those that do not wait any more are skipped
	listed  map[*lookup]struct{}
	running int
}

// enqueue makes the name wait for a turn of a cluster, beside those of others.
func (l *lookup) enqueue(cluster string) {
	g := queue.groups[cluster]
	if g == nil {
		g = &group{cluster: cluster, listed: make(map[*lookup]struct{})}
		queue.groups[cluster] = g
	}
	l.waits = true
	if _, listed := g.listed[l]; listed {
		return
	}
	if len(g.names) == 0 {
		queue.waiting = append(queue.waiting, g)
	}
	g.names, g.listed[l] = append(g.names, l), struct{}{}
}

// skip removes names up to the first one that waits, and reports whether there is none.
func (g *group) skip() bool {
	for len(g.names) > 0 && !g.names[0].waits {
		g.next()
	}
	g.forget()
	return len(g.names) == 0
}

// next removes the first name.
func (g *group) next() *lookup {
	l := g.names[0]
	g.names = g.names[1:]
	delete(g.listed, l)
	return l
}

// forget forgets a group that has nothing any more.
func (g *group) forget() {
	if len(g.names)+g.running == 0 {
		delete(queue.groups, g.cluster)
	}
}

// startLookups begins look-ups while there are places for them.
func startLookups() {
	for queue.running < bounds.Lookups+bounds.LookupsReserve {
		if queue.waiting = slices.DeleteFunc(queue.waiting, (*group).skip); len(queue.waiting) == 0 {
			return
		}
		g := slices.MinFunc(queue.waiting, func(a, b *group) int { return cmp.Compare(a.running, b.running) })
		if queue.running >= bounds.Lookups && g.running > 0 {
			return
		}
		queue.waiting = slices.DeleteFunc(queue.waiting, func(other *group) bool { return other == g })
		l := g.next()
		if len(g.names) > 0 {
			queue.waiting = append(queue.waiting, g)
		}
		g.running++
		queue.running++
		l.asked, l.waits, l.running = false, false, true
		go work(l, g)
	}
}

// work looks a name up, at the turn of a group.
func work(l *lookup, g *group) {
	ok := l.run()
	mu.Lock()
	defer mu.Unlock()
	queue.running--
	g.running--
	g.forget()
	l.finish(ok)
	startLookups()
}
