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

// collection is what a watch of a collection has beside that of a resource. The layer above keeps members of an old leg
// until the running one has reported its own.
type collection struct {
	watcher xdsclient.CollectionWatcher
	members map[memberKey]heldMember // of the layer above; guarded by wrapper.mu
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

// collectionLeg is the watcher below of a collection.
type collectionLeg leg

// MemberChanged implements xdsclient.CollectionWatcher.
func (l *collectionLeg) MemberChanged(m xdsclient.Member, value any, err error, done func()) {
	x := l.watch
	x.serial.Lock()
	defer x.serial.Unlock()
	switch l.judgeMember(m, err) {
	case passNothing:
		done()
	case passAmbient:
		x.collection.watcher.AmbientError(m, err, done)
	case passChange:
		x.collection.watcher.MemberChanged(m, value, err, done)
	}
}

// CollectionChanged implements xdsclient.CollectionWatcher. The first answer of the running leg
// removes the members that only older legs had.
func (l *collectionLeg) CollectionChanged(err error, done func()) {
	x := l.watch
	x.serial.Lock()
	defer x.serial.Unlock()
	verdict, left := l.judgeWhole(err)
	switch verdict {
	case passNothing:
		done()
	case passAmbient:
		x.collection.watcher.AmbientError(xdsclient.Member{}, err, done)
	case passChange:
		next := shared(len(left)+1, done)
		for _, m := range left {
			x.collection.watcher.MemberChanged(m, nil, l.leftError(m), next())
		}
		x.collection.watcher.CollectionChanged(err, next())
	}
}

// AmbientError implements xdsclient.CollectionWatcher.
func (l *collectionLeg) AmbientError(m xdsclient.Member, err error, done func()) {
	l.watch.serial.Lock()
	defer l.watch.serial.Unlock()
	if (*leg)(l).running() {
		l.watch.collection.watcher.AmbientError(m, err, done)
	} else {
		done()
	}
}

// judgeMember records a change of a member, and returns how it is passed on. A leg that reports an error of a member
// has that member, unless the error withdraws it: the member is not removed with those that only older legs had.
func (l *collectionLeg) judgeMember(m xdsclient.Member, err error) passage {
	mu := l.watch.mu()
	mu.Lock()
	defer mu.Unlock()
	members, key := l.watch.collection.members, keyOf(m)
	from := members[key].leg
	verdict := (*leg)(l).judge(&from, err)
	switch {
	case verdict == passNothing:
	case from == nil:
		delete(members, key)
	default:
		members[key] = heldMember{m, (*leg)(l)}
	}
	return verdict
}

// judgeWhole records a change of the collection as a whole, and returns how it is passed on, and
// the members that it removes, in order. An error before the first answer of the collection leaves its members; a
// later one of the same leg withdraws them.
func (l *collectionLeg) judgeWhole(err error) (verdict passage, left []xdsclient.Member) {
	x := l.watch
	mu := x.mu()
	mu.Lock()
	defer mu.Unlock()
	members := x.collection.members
	from := x.from
	if from == nil && len(members) > 0 {
		from = anOlderLeg
	}
	if verdict = (*leg)(l).judge(&from, err); verdict != passChange {
		return verdict, nil
	}
	if x.from = from; from == nil {
		clear(members)
	}
	for key, held := range members {
		if held.leg != from {
			left = append(left, held.Member)
			delete(members, key)
		}
	}
	slices.SortFunc(left, func(a, b xdsclient.Member) int {
		return strings.Compare(a.Name+a.Parameters.Key(), b.Name+b.Parameters.Key())
	})
	return verdict, left
}

// leftError reports that a member is not in the collection with the constraints of the leg.
func (l *collectionLeg) leftError(m xdsclient.Member) *xdsclient.Error {
	return &xdsclient.Error{
		Kind:        xdsclient.KindDoesNotExist,
		Code:        codes.NotFound,
		TypeName:    l.watch.typ.Name,
		Resource:    m.Name,
		Constraints: l.constraints,
		NodeID:      l.watch.below.Bootstrap().Node.GetId(),
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
