package dpdswrapper

import (
	"cmp"
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

// collectionLeg is the watcher below of a collection.
type collectionLeg struct{ *leg }

// MemberChanged implements xdsclient.CollectionWatcher. An error of a member that the layer above has of an older leg leaves
// the member in use, as one of this leg, unless it withdraws the member. Of a collection that has not answered as a whole, the
// layer above has what its first member is of.
func (l collectionLeg) MemberChanged(m xdsclient.Member, value any, err error, done func()) {
	if !l.running() {
		done()
		return
	}
	x, key := l.watch, keyOf(m)
	keeps := x.members[key].leg.keeps(err, l.leg)
	if err == nil || keeps {
		x.members[key] = heldMember{m, l.leg}
		x.from = cmp.Or(x.from, l.leg)
	} else {
		delete(x.members, key)
	}
	if keeps {
		x.collection.AmbientError(m, err, done)
	} else {
		x.collection.MemberChanged(m, value, err, done)
	}
}

// CollectionChanged implements xdsclient.CollectionWatcher. It removes the members that only older legs had.
func (l collectionLeg) CollectionChanged(err error, done func()) {
	x := l.watch
	switch {
	case !l.running():
		done()
		return
	case x.from.keeps(err, l.leg):
		x.collection.AmbientError(xdsclient.Member{}, err, done)
		return
	case err == nil:
		x.from = l.leg
	default:
		x.from = nil
		clear(x.members) // The error withdraws them with the collection.
	}
	whole := done
	if left := x.left(); len(left) > 0 {
		// done is called when the last of these calls is done.
		var open atomic.Int64
		share := func() func() {
			open.Add(1)
			return sync.OnceFunc(func() {
				if open.Add(-1) == 0 {
					done()
				}
			})
		}
		whole = share()
		for _, m := range left {
			x.collection.MemberChanged(m, nil, l.leftError(m), share())
		}
	}
	x.collection.CollectionChanged(err, whole)
}

// AmbientError implements xdsclient.CollectionWatcher.
func (l collectionLeg) AmbientError(m xdsclient.Member, err error, done func()) {
	if l.running() {
		l.watch.collection.AmbientError(m, err, done)
	} else {
		done()
	}
}

// left removes the members that the layer above has of other legs than the collection, and returns them in order.
func (x *watch) left() (left []xdsclient.Member) {
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
