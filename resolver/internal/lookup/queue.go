package lookup

import (
	"container/heap"
	"container/list"
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
	turns   turns          // those with names that wait
	turn    uint64         // the number of turns so far
	running int
}

// group is what shares the turns of a Watch.Group. Guarded by queue.mu.
type group struct {
	key     any
	waiting list.List // of *lookup
	running int
	turn    uint64 // the last one that the group had
	index   int    // in queue.turns, -1 if nothing waits
}

// place is where a name waits in one group.
type place struct {
	group   *group
	element *list.Element
}

// wait puts a name into the queue, in each of the given groups.
func (l *lookup) wait(groups map[any]bool) {
	queue.mu.Lock()
	defer queue.mu.Unlock()
	l.joinLocked(groups)
	startLocked()
}

// moveTo moves a name that waits to the given groups. In groups that have the name already it keeps its place.
func (l *lookup) moveTo(groups map[any]bool) {
	queue.mu.Lock()
	defer queue.mu.Unlock()
	if len(l.places) == 0 { // its look-up is about to begin
		return
	}
	kept := l.places[:0]
	for _, p := range l.places {
		if groups[p.group.key] {
			kept = append(kept, p)
			delete(groups, p.group.key)
		} else {
			p.leaveLocked()
		}
	}
	l.places = kept
	l.joinLocked(groups)
	startLocked()
}

func (l *lookup) joinLocked(groups map[any]bool) {
	for key := range groups {
		g := queue.groups[key]
		if g == nil {
			g = &group{key: key, index: -1}
			if queue.groups == nil {
				queue.groups = make(map[any]*group)
			}
			queue.groups[key] = g
		}
		l.places = append(l.places, place{g, g.waiting.PushBack(l)})
		if g.index < 0 {
			// A group that comes back is not ahead of those that wait.
			queue.turn++
			g.turn = queue.turn
			heap.Push(&queue.turns, g)
		}
	}
}

// unqueueLocked takes a name out of the queue, if it is there.
func (l *lookup) unqueueLocked() {
	for _, p := range l.places {
		p.leaveLocked()
	}
	l.places = nil
}

func (p place) leaveLocked() {
	p.group.waiting.Remove(p.element)
	if p.group.waiting.Len() == 0 {
		heap.Remove(&queue.turns, p.group.index)
		p.group.forgetLocked()
	}
}

// forgetLocked forgets a group that has nothing any more.
func (g *group) forgetLocked() {
	if g.waiting.Len() == 0 && g.running == 0 {
		delete(queue.groups, g.key)
	}
}

// startLocked begins look-ups while there are places for them.
func startLocked() {
	for len(queue.turns) > 0 {
		g := queue.turns[0]
		reserved := g.running == 0 && queue.running < bounds.Lookups+bounds.LookupsReserve
		if queue.running >= bounds.Lookups && !reserved {
			return
		}
		queue.turn++
		g.turn = queue.turn
		g.running++
		queue.running++
		heap.Fix(&queue.turns, g.index)
		l := g.waiting.Front().Value.(*lookup)
		l.unqueueLocked()
		go work(l, g)
	}
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
	if g.index >= 0 {
		heap.Fix(&queue.turns, g.index)
	}
	g.forgetLocked()
	startLocked()
}

// turns is a heap of the groups with names that wait, the one that is next first.
type turns []*group

func (t turns) Len() int { return len(t) }

func (t turns) Less(i, j int) bool {
	if t[i].running != t[j].running {
		return t[i].running < t[j].running
	}
	return t[i].turn < t[j].turn
}

func (t turns) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].index, t[j].index = i, j
}

// Push implements heap.Interface.
func (t *turns) Push(x any) {
	g := x.(*group)
	g.index = len(*t)
	*t = append(*t, g)
}

// Pop implements heap.Interface.
func (t *turns) Pop() any {
	last := len(*t) - 1
	g := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	g.index = -1
	return g
}
