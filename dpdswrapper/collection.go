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
	whole   *leg                     // that of the last CollectionChanged, nil if that was an error
	members map[memberKey]heldMember // of the layer above
}

// anOlderLeg stands for whichever leg gave the members of a collection that has not answered as a whole.
var anOlderLeg = new(leg)

type memberKey struct{ name, parameters string }

// heldMember is a member that the layer above has, and the leg that has it.
type heldMember struct {
	xdsclient.Member
	leg *leg
}

func keyOf(m xdsclient.Member) memberKey { return memberKey{m.Name, m.Parameters.Key()} }

func (x *collectionWatch) open(l *leg) (stop func()) {
	g := x.group
	return x.below.WatchCollectionLocator(g.typ, x.name, g.constraints, (*collectionLeg)(l))
}

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

// judgeMember records a change of a member, and returns how it is passed on. A leg that reports an error of a member
// has that member, unless the error withdraws it: the member is not removed with those that only older legs had.
func (l *collectionLeg) judgeMember(m xdsclient.Member, err error) (verdict passage) {
	x := l.of()
	mu := x.mu()
	mu.Lock()
	defer mu.Unlock()
	verdict, now := (*leg)(l).judge(x.members[keyOf(m)].leg, err)
	switch {
	case verdict == passNothing:
	case now == nil:
		delete(x.members, keyOf(m))
	default:
		x.members[keyOf(m)] = heldMember{m, (*leg)(l)}
	}
	return verdict
}

// judge records a change of the collection as a whole, and returns how it is passed on, and
// the members that it removes, in order. An error before the first answer of the collection leaves its members; a
// later one of the same leg withdraws them.
func (l *collectionLeg) judge(err error) (verdict passage, left []xdsclient.Member) {
	x := l.of()
	mu := x.mu()
	mu.Lock()
	defer mu.Unlock()
	before := x.whole
	if before == nil && len(x.members) > 0 {
		before = anOlderLeg
	}
	verdict, now := (*leg)(l).judge(before, err)
	if verdict != passChange {
		return verdict, nil
	}
	if x.whole = now; now != nil {
		return verdict, x.expel()
	}
	clear(x.members)
	return verdict, nil
}

// expel removes the members that the running leg does not have. The caller holds wrapper.mu.
func (x *collectionWatch) expel() (left []xdsclient.Member) {
	for key, held := range x.members {
		if held.leg != x.leg {
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
