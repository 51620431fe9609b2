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

// A watch of a collection has members beside what that of a resource has. The layer above keeps those of an old leg until the
// running one has reported its own.

type memberKey struct{ name, parameters string }

// heldMember is a member that the layer above has, and the leg that has it.
type heldMember struct {
	xdsclient.Member
	leg *leg
}

func keyOf(m xdsclient.Member) memberKey { return memberKey{m.Name, m.Parameters.Key()} }

// part is the watcher above of a member of a collection, or of the collection as a whole: the zero Member.
type part struct {
	collection xdsclient.CollectionWatcher
	member     xdsclient.Member
}

// above returns the watcher above of a member, or with the zero Member that of a resource or a collection as a whole.
func (x *watch) above(m xdsclient.Member) xdsclient.Watcher {
	if whole, ok := x.watcher.(part); ok {
		return part{whole.collection, m}
	}
	return x.watcher
}

// ResourceChanged implements xdsclient.Watcher.
func (p part) ResourceChanged(value any, err error, done func()) {
	if p.member.Name == "" {
		p.collection.CollectionChanged(err, done)
	} else {
		p.collection.MemberChanged(p.member, value, err, done)
	}
}

// AmbientError implements xdsclient.Watcher.
func (p part) AmbientError(err error, done func()) { p.collection.AmbientError(p.member, err, done) }

// collectionLeg is the watcher below of a collection.
type collectionLeg struct{ *leg }

// MemberChanged implements xdsclient.CollectionWatcher.
func (l collectionLeg) MemberChanged(m xdsclient.Member, value any, err error, done func()) {
	l.pass(m, passChange, value, err, done)
}

// CollectionChanged implements xdsclient.CollectionWatcher.
func (l collectionLeg) CollectionChanged(err error, done func()) { l.ResourceChanged(nil, err, done) }

// AmbientError implements xdsclient.CollectionWatcher.
func (l collectionLeg) AmbientError(m xdsclient.Member, err error, done func()) {
	l.pass(m, passAmbient, nil, err, done)
}

// hold records that the layer above has a member of a leg, nil for none. A leg that reports an error of a member
// has that member, unless the error withdraws it: the member is not removed with those that only older legs had.
// Of a collection that has not answered as a whole, the layer above has what its first member is of.
func (x *watch) hold(m xdsclient.Member, from *leg) {
	if from == nil {
		delete(x.members, keyOf(m))
		return
	}
	x.members[keyOf(m)] = heldMember{m, from}
	if x.from == nil {
		x.from = from
	}
}

// left removes the members that the layer above has of other legs than the collection, and returns them in order. None
// have to be removed one by one if the whole collection is withdrawn.
func (x *watch) left() (left []xdsclient.Member) {
	if x.from == nil {
		clear(x.members)
	}
	for key, held := range x.members {
		if held.leg != x.from {
			left = append(left, held.Member)
			delete(x.members, key)
		}
	}
	slices.SortFunc(left, func(a, b xdsclient.Member) int {
		return strings.Compare(a.Name+a.Parameters.Key(), b.Name+b.Parameters.Key())
	})
	return left
}

// leftError reports that a member is not in the collection with the constraints of the leg.
func (l *leg) leftError(m xdsclient.Member) *xdsclient.Error {
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
	if n == 1 {
		return func() func() { return done }
	}
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
