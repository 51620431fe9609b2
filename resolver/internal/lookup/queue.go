package lookup

import (
	"cmp"
	"container/list"
	"slices"

	"github.com/dynxds/dynxds/internal/bounds"
)

// queue has the names that wait for a look-up, by group. A free place goes to the group with the fewest
// look-ups under way, and among these to the one that has waited longest. A group that has none under way
// gets a place of a reserve if no other is free:
//
//	cluster a has 1,000 names that DNS does not answer:  100 look-ups are under way, 900 names wait
//	cluster b wants one name looked up:                  that begins at once, in the reserve
//	cluster c has 2 names:                               one begins at once, the other one when the first ends
//
// Guarded by mu.
var queue = struct {
	groups  map[any]*group // those with names that wait or are looked up
	waiting []*group       // those with names that wait
	turn    uint64         // the number of turns so far
	running int
}{groups: make(map[any]*group)}

// group is what shares the turns of a Watch.group. Guarded by mu.
type group struct {
	key     any
	watches list.List // of the names that wait, in order: *Watch
	running int
	turn    uint64 // the last one that the group had
}

// enqueue makes the name of a watch wait in its group.
func (w *Watch) enqueue() {
	g := queue.groups[w.group]
	if g == nil {
		g = &group{key: w.group}
		queue.groups[w.group] = g
	}
	if g.watches.Len() == 0 {
		// A group that comes back is not ahead of those that wait.
		queue.turn++
		g.turn = queue.turn
		queue.waiting = append(queue.waiting, g)
	}
	w.place = g.watches.PushBack(w)
}

// dequeue ends that, if the name waits.
func (w *Watch) dequeue() {
	if w.place == nil {
		return
	}
	g := queue.groups[w.group]
	g.watches.Remove(w.place)
	w.place = nil
	if g.watches.Len() == 0 {
		queue.waiting = slices.DeleteFunc(queue.waiting, func(o *group) bool { return o == g })
	}
	g.forget()
}

// forget forgets a group that has nothing any more.
func (g *group) forget() {
	if g.watches.Len() == 0 && g.running == 0 {
		delete(queue.groups, g.key)
	}
}

// startLookups begins look-ups while there are places for them.
func startLookups() {
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
		l := g.watches.Front().Value.(*Watch).lookup
		l.phase = running
		for w := range l.watches {
			w.dequeue()
		}
		go work(l, g)
	}
}

// compare is negative if g is next before o.
func (g *group) compare(o *group) int {
	return cmp.Or(cmp.Compare(g.running, o.running), cmp.Compare(g.turn, o.turn))
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
