package dpdswrapper

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/xdsclient"
)

// WatchCollection implements xdsclient.Client.
func (w *Wrapper) WatchCollection(t *xdsclient.ResourceType, name string, watcher xdsclient.CollectionWatcher) (stop func()) {
	return w.watchCollection(w.below, t, name, watcher)
}

// watchCollection does for a collection what watch does for a resource.
func (w *Wrapper) watchCollection(below xdsclient.LocatorClient, t *xdsclient.ResourceType, name string, watcher xdsclient.CollectionWatcher) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := &collectionWatch{watch: watch{below: below, name: name}, watcher: watcher, members: make(map[memberKey]heldMember)}
	x.kind = x
	w.scopeOf(name).add(t, &x.watch)
	return x.stop
}

// collectionWatch is the watch of a collection. The layer above has members that
// were told by a leg that has ended until the running one has told of its own.
type collectionWatch struct {
	watch
	watcher xdsclient.CollectionWatcher

	// What follows is guarded by Wrapper.mu.

	// round numbers the legs.
	round int
	// whole is the leg that said last how it stands with the collection as a whole,
	// if that was no error; else it is 0.
	whole int
	// members are those that the layer above has.
	members map[memberKey]heldMember
}

type memberKey struct{ name, parameters string }

// heldMember is a member that the layer above has, and the leg that told of it.
type heldMember struct {
	xdsclient.Member
	round int
}

func keyOf(m xdsclient.Member) memberKey { return memberKey{m.Name, m.Parameters.Key()} }

func (x *collectionWatch) open(l *leg) (stop func()) {
	x.round++
	g := x.group
	return x.below.WatchCollectionLocator(g.typ, x.name, g.constraints, (*collectionLeg)(l))
}

// outdate has nothing to do: the round has changed.
func (x *collectionWatch) outdate() {}

// collectionLeg is the watcher below of a collection.
type collectionLeg leg

func (l *collectionLeg) of() *collectionWatch { return l.watch.kind.(*collectionWatch) }

// MemberChanged implements xdsclient.CollectionWatcher.
func (l *collectionLeg) MemberChanged(m xdsclient.Member, value any, err error, done func()) {
	x := l.of()
	x.serial.Lock()
	defer x.serial.Unlock()
	switch l.judgeMember(m, err) {
	case passNothing:
		done()
	case passAmbient:
		x.watcher.AmbientError(m, err, done)
	case passChange:
		x.watcher.MemberChanged(m, value, err, done)
	}
}

// CollectionChanged implements xdsclient.CollectionWatcher. With the first answer
// that the running leg has, the members that only legs before it had leave.
func (l *collectionLeg) CollectionChanged(err error, done func()) {
	x := l.of()
	x.serial.Lock()
	defer x.serial.Unlock()
	verdict, left := l.judge(err)
	switch verdict {
	case passNothing:
		done()
	case passAmbient:
		x.watcher.AmbientError(xdsclient.Member{}, err, done)
	case passChange:
		next := shared(len(left)+1, done)
		for _, m := range left {
			x.watcher.MemberChanged(m, nil, x.leftError(m), next())
		}
		x.watcher.CollectionChanged(err, next())
	}
}

// AmbientError implements xdsclient.CollectionWatcher.
func (l *collectionLeg) AmbientError(m xdsclient.Member, err error, done func()) {
	x := l.of()
	x.serial.Lock()
	defer x.serial.Unlock()
	if !(*leg)(l).running() {
		done()
		return
	}
	x.watcher.AmbientError(m, err, done)
}

// judgeMember takes note of a change of a member and says how it goes on.
func (l *collectionLeg) judgeMember(m xdsclient.Member, err error) passage {
	x := l.of()
	mu := x.mu()
	mu.Lock()
	defer mu.Unlock()
	held, known := x.members[keyOf(m)]
	switch {
	case !(*leg)(l).isRunning():
		return passNothing
	case err == nil:
		x.members[keyOf(m)] = heldMember{m, x.round}
		return passChange
	case known && held.round != x.round && !withdraws(err):
		// The leg has it, so that it does not leave.
		x.members[keyOf(m)] = heldMember{m, x.round}
		return passAmbient
	default:
		delete(x.members, keyOf(m))
		return passChange
	}
}

// judge takes note of what is said of the collection as a whole, and says how that
// goes on, and which members have left by it, in order.
func (l *collectionLeg) judge(err error) (verdict passage, left []xdsclient.Member) {
	x := l.of()
	mu := x.mu()
	mu.Lock()
	defer mu.Unlock()
	switch {
	case !(*leg)(l).isRunning():
		return passNothing, nil
	case err == nil:
		x.whole = x.round
		return passChange, x.expel()
	case x.whole != x.round && (x.whole != 0 || len(x.members) > 0) && !withdraws(err):
		return passAmbient, nil
	default: // what was said of members is void
		x.whole = 0
		clear(x.members)
		return passChange, nil
	}
}

// expel forgets the members that the running leg does not have. The caller holds
// Wrapper.mu.
func (x *collectionWatch) expel() (left []xdsclient.Member) {
	for key, held := range x.members {
		if held.round != x.round {
			left = append(left, held.Member)
			delete(x.members, key)
		}
	}
	slices.SortFunc(left, func(a, b xdsclient.Member) int {
		return strings.Compare(a.Name+a.Parameters.Key(), b.Name+b.Parameters.Key())
	})
	return left
}

// leftError says that a member is not in the collection that the constraints of the
// running leg choose.
func (x *collectionWatch) leftError(m xdsclient.Member) *xdsclient.Error {
	g := x.group
	mu := x.mu()
	mu.Lock()
	defer mu.Unlock()
	return &xdsclient.Error{
		Kind:        xdsclient.KindDoesNotExist,
		Code:        codes.NotFound,
		TypeName:    g.typ.Name,
		Resource:    m.Name,
		Constraints: g.constraints,
		NodeID:      g.scope.wrapper.Bootstrap().Node.GetId(),
		Err:         fmt.Errorf("does not exist: %v is no member of the collection with these constraints", m.Parameters),
	}
}

// shared returns what makes n functions, each of which may be called again; done is
// called when all of them were called.
func shared(n int, done func()) (next func() func()) {
	var open atomic.Int64
	open.Store(int64(n))
	return func() func() {
		return sync.OnceFunc(func() {
			if open.Add(-1) == 0 {
				done()
			}
		})
	}
}
