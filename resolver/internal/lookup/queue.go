package lookup

import "github.com/dynxds/dynxds/internal/bounds"

// group has the names of one cluster that wait for a look-up. A free place goes to the cluster with the fewest look-ups under way, and among
// these to the one that has waited longest. A cluster that has none under way gets a place of a reserve if no other is free:
//
//	cluster a has 1,000 names that DNS does not answer:  100 look-ups are under way, 900 names wait
//	cluster b wants one name looked up:                  that begins at once, in the reserve
//	cluster c has 2 names:                               one begins at once, the other one when the first ends
//
// Guarded by mu.
type group struct {
	names   []*lookup // in order; those that do not wait any more are skipped
	running int
	since   uint64 // the cluster waits: the number of its last turn, or of the time when it came
}

// Guarded by mu.
var (
	groups  = make(map[string]*group) // by cluster, those with names that wait or are looked up
	running int                       // for all groups
	number  uint64                    // of the last turn of any group
)

// enqueue makes the name wait for a turn of a cluster, beside those of others.
func (l *lookup) enqueue(cluster string) {
	g := groups[cluster]
	if g == nil {
		g = new(group)
		groups[cluster] = g
	}
	if len(g.names) == 0 {
		g.wait()
	}
	g.names, l.waits = append(g.names, l), true
}

// wait makes the group the last one.
func (g *group) wait() {
	number++
	g.since = number
}

// before reports whether a group is to have a place rather than another one, which may be nil.
func (g *group) before(o *group) bool {
	return o == nil || g.running < o.running || g.running == o.running && g.since < o.since
}

// startLookups begins look-ups while there are places for them.
func startLookups() {
	for running < bounds.Lookups+bounds.LookupsReserve {
		var first *group
		for cluster, g := range groups {
			for len(g.names) > 0 && !g.names[0].waits {
				g.names = g.names[1:]
			}
			switch {
			case len(g.names) > 0 && g.before(first):
				first = g
			case len(g.names)+g.running == 0:
				delete(groups, cluster)
			}
		}
		if first == nil || running >= bounds.Lookups && first.running > 0 {
			return
		}
		l := first.names[0]
		first.names = first.names[1:]
		first.wait()
		first.running++
		running++
		l.asked, l.waits, l.running = false, false, true
		go work(l, first)
	}
}

// work looks a name up, at the turn of a group.
func work(l *lookup, g *group) {
	ok := l.run()
	mu.Lock()
	defer mu.Unlock()
	running--
	g.running--
	l.finish(ok)
	startLookups()
}
