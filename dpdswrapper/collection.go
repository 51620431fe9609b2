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

// collectionWatch is the watch of a collection. The layer above keeps members of an old leg
// until the running one has reported its own.
type collectionWatch struct {
	watch
	watcher xdsclient.CollectionWatcher

	// Guarded by wrapper.mu.
	round   int                      // number of the running leg
	whole   int                      // the leg of the last CollectionChanged, 0 if that was an error
	members map[memberKey]heldMember // of the layer above
}

type memberKey struct{ name, parameters string }

// heldMember is a member that the layer above has, and the number of its leg.
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

// outdate does nothing: the round has changed.
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

// CollectionChanged implements xdsclient.CollectionWatcher. The first answer of the running leg
// removes the members that only older legs had.
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
	if (*leg)(l).running() {
		x.watcher.AmbientError(m, err, done)
	} else {
		done()
	}
}

// judgeMember records a change of a member, and returns how it is passed on.
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
		// The leg has the member, so it is not removed.
		x.members[keyOf(m)] = heldMember{m, x.round}
		return passAmbient
	default:
		delete(x.members, keyOf(m))
		return passChange
	}
}

// judge records a change of the collection as a whole, and returns how it is passed on, and
// the members that it removes, in order.
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
	default: // it also withdraws the members
		x.whole = 0
		clear(x.members)
		return passChange, nil
	}
}

// expel removes the members that the running leg does not have. The caller holds wrapper.mu.
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

// leftError reports that a member is not in the collection with the constraints of the running
// leg.
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
		NodeID:      x.below.Bootstrap().Node.GetId(),
		Err:         fmt.Errorf("does not exist: %v is not a member of the collection with these constraints", m.Parameters),
	}
}

// shared returns a maker of n functions, each of which may be called repeatedly. done is
// called when all of them have been called.
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
