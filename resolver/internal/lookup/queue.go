package lookup

import (
	"cmp"
	"slices"
	"sync"

	"github.com/dynxds/dynxds/internal/bounds"
)

// queue has the names that wait for a look-up, by group. A free place goes to the group with the fewest
// look-ups under way, and among these to the one that has waited longest. A group that has none under way
// gets a place of a reserve if no other is free:
//
//	cluster a has 1,000 names that DNS does not answer:  100 look-ups are under way, 900 names wait
//	cluster b wants one name looked up:                  that begins at once, in the reserve
//	cluster c has 2 names:                               one begins at once, the other one when the first ends
var queue struct {
	mu      sync.Mutex
	groups  map[any]*group // those with names that wait or are looked up
	waiting []*group       // those with names that wait
	turn    uint64         // the number of turns so far
	running int
}

// group is what shares the turns of a Watch.Group. Guarded by queue.mu.
type group struct {
	key     any
	names   []*lookup // that wait, in order
	running int
	turn    uint64 // the last one that the group had
}

// enqueue puts a name into the queue, in each of the given groups.
func (l *lookup) enqueue(keys map[any]bool) {
	queue.mu.Lock()
	defer queue.mu.Unlock()
	l.joinLocked(keys)
	startLocked()
}

// requeue moves a name to the given groups, unless its look-up is about to begin. In groups that have the name already it keeps its place.
func (l *lookup) requeue(keys map[any]bool) {
	queue.mu.Lock()
	defer queue.mu.Unlock()
	if len(l.groups) == 0 {
		return
	}
	l.leaveLocked(keys)
	l.joinLocked(keys)
	startLocked()
}

// dequeue takes a name out of the queue, if it is there.
func (l *lookup) dequeue() {
	queue.mu.Lock()
	defer queue.mu.Unlock()
	l.leaveLocked(nil)
}

func (l *lookup) joinLocked(keys map[any]bool) {
	for key := range keys {
		g := queue.groups[key]
		if g == nil {
			g = &group{key: key}
			if queue.groups == nil {
				queue.groups = make(map[any]*group)
			}
			queue.groups[key] = g
		}
		if slices.Contains(l.groups, g) {
			continue
		}
		l.groups = append(l.groups, g)
		g.names = append(g.names, l)
		if len(g.names) == 1 {
			// A group that comes back is not ahead of those that wait.
			queue.turn++
			g.turn = queue.turn
			queue.waiting = append(queue.waiting, g)
		}
	}
}

// leaveLocked takes a name out of all groups but those given.
func (l *lookup) leaveLocked(but map[any]bool) {
	l.groups = slices.DeleteFunc(l.groups, func(g *group) bool {
		if but[g.key] {
			return false
		}
		i := slices.Index(g.names, l)
		g.names = slices.Delete(g.names, i, i+1)
		if len(g.names) == 0 {
			i := slices.Index(queue.waiting, g)
			queue.waiting = slices.Delete(queue.waiting, i, i+1)
			g.forgetLocked()
		}
		return true
	})
}

// forgetLocked forgets a group that has nothing any more.
func (g *group) forgetLocked() {
	if len(g.names) == 0 && g.running == 0 {
		delete(queue.groups, g.key)
	}
}

// startLocked begins look-ups while there are places for them.
func startLocked() {
	for len(queue.waiting) > 0 {
		g := slices.MinFunc(queue.waiting, (*group).compare)
		reserved := g.running == 0 && queue.running < bounds.Lookups+bounds.LookupsReserve
		if queue.running >= bounds.Lookups && !reserved {
			return
		}
		queue.turn++
		g.turn = queue.turn
		g.running++
		queue.running++
		l := g.names[0]
		l.leaveLocked(nil)
		go work(l, g)
	}
}

// compare is negative if g is next before o.
func (g *group) compare(o *group) int {
	return cmp.Or(cmp.Compare(g.running, o.running), cmp.Compare(g.turn, o.turn))
}

// work looks a name up, at the turn of a group.
func work(l *lookup, g *group) {
	if l.begin() {
		l.finish(l.run())
	}
	queue.mu.Lock()
	defer queue.mu.Unlock()
	queue.running--
	g.running--
	g.forgetLocked()
	startLocked()
}
