package dpdswrapper_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

var clustersOfA = name("a", clusterType, "*")

// member is a variant of a cluster of authority "a".
func member(id string, pairs ...string) xdsclient.Member {
	return xdsclient.Member{Name: name("a", clusterType, id), Parameters: must(dynparam.NewParameters(mapOf(pairs)))}
}

// crowd is a watcher of a collection in the layer above.
type crowd struct{ record }

func (c *crowd) addCall(what string, m xdsclient.Member, content any, err error, done func()) {
	if m.Name != "" {
		what += " " + m.Name[strings.LastIndexByte(m.Name, '/')+1:] + m.Parameters.String()
	}
	switch {
	case err != nil:
		what += ": " + text(err)
	case content != nil:
		what += fmt.Sprint(" = ", content)
	}
	c.add(what, done)
}

func (c *crowd) MemberChanged(m xdsclient.Member, value any, err error, done func()) {
	c.addCall("member", m, value, err, done)
}

func (c *crowd) CollectionChanged(err error, done func()) {
	c.addCall("whole", xdsclient.Member{}, nil, err, done)
}

func (c *crowd) AmbientError(m xdsclient.Member, err error, done func()) {
	c.addCall("ambient", m, nil, err, done)
}

// collected makes a fixture whose layer above has the given members, with the constraint v=1,
// and moves it to v=2.
func collected(t *testing.T, members ...string) (f *fixture, above *crowd, old, running *fakeWatch) {
	t.Helper()
	f, above = newFixture(t, authorities), new(crowd)
	f.WatchCollection(xdsresource.ClusterType, clustersOfA, above)
	f.expect("+DPDS for-a")
	f.dpds("for-a", only(clusterType, "v", "1"))
	f.expect("[", "+Cluster "+clustersOfA+" {v=1}", "]")
	old = f.find("Cluster")
	for _, id := range members {
		old.memberChanged(member(id, "v", "1"), "first", nil)
	}
	old.collectionChanged(nil)
	above.calls = nil
	f.dpds("for-a", only(clusterType, "v", "2"))
	f.expect("[", "+Cluster "+clustersOfA+" {v=2}", "-Cluster "+clustersOfA+" {v=1}", "]")
	above.expect(t)
	return f, above, old, f.find("Cluster")
}

func (w *fakeWatch) memberChanged(m xdsclient.Member, value any, err error) {
	w.client.t.Helper()
	w.once(func(done func()) { w.collection.MemberChanged(m, value, err, done) })
}

func (w *fakeWatch) collectionChanged(err error) {
	w.client.t.Helper()
	w.once(func(done func()) { w.collection.CollectionChanged(err, done) })
}

// TP2, "Server-Specified Constraints": the layer above does not see the resubscription. It keeps
// its members until those of the new constraints arrive.
func TestCollectionMovesWithoutAGap(t *testing.T) {
	t.Parallel()
	_, above, _, running := collected(t, "x", "y")
	running.memberChanged(member("x", "v", "2"), "second", nil)
	above.expect(t, "member x{v=2} = second")
	running.memberChanged(member("z"), "second", nil)
	above.expect(t, "member z{} = second")
	running.collectionChanged(nil)
	above.expect(t, "member x{v=1}: does not exist", "member y{v=1}: does not exist", "whole")
	running.memberChanged(member("x", "v", "2"), nil, errDoesNotExist)
	above.expect(t, "member x{v=2}: does not exist")
	running.collectionChanged(nil)
	above.expect(t, "whole")
}

// Errors of the collection as a whole, in place of its new members.
func TestErrorsOfANewCollection(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want string
		void bool
	}{
		{errDoesNotExist, "whole: does not exist", true},
		{errNotFound, "whole: NotFound", true},
		{errDenied, "whole: PermissionDenied", true},
		{errInternal, "ambient: Internal", false},
		{errUnreachable, "ambient: unreachable", false},
		{errTimeout, "ambient: timeout", false},
	} {
		xdstest.Parallel(t, text(test.err), func(t *testing.T) {
			_, above, _, running := collected(t, "x")
			running.collectionChanged(test.err)
			above.expect(t, test.want)
			running.collectionChanged(nil)
			if test.void { // it withdrew the members
				above.expect(t, "whole")
			} else {
				above.expect(t, "member x{v=1}: does not exist", "whole")
			}
		})
	}
}

// An error of the new leg for a member of the old one is ambient, unless it withdraws the
// member.
func TestErrorsOfAMemberDuringAMove(t *testing.T) {
	t.Parallel()
	_, above, _, running := collected(t, "x", "y")
	running.memberChanged(member("x", "v", "1"), nil, errInvalid)
	running.memberChanged(member("y", "v", "1"), nil, errDenied)
	running.memberChanged(member("z"), nil, errInvalid)
	running.collection.AmbientError(member("x", "v", "1"), errUnreachable, func() {})
	above.expect(t, "ambient x{v=1}: invalid", "member y{v=1}: PermissionDenied", "member z{}: invalid", "ambient x{v=1}: unreachable")
	running.collectionChanged(nil) // the leg has x, if an invalid one
	above.expect(t, "whole")
}

func TestLateCallsForAnOldCollectionAreDropped(t *testing.T) {
	t.Parallel()
	_, above, old, _ := collected(t, "x")
	old.memberChanged(member("x", "v", "1"), "late", nil)
	old.collectionChanged(errDoesNotExist)
	old.collection.AmbientError(member("x"), errInternal, func() {})
	above.expect(t)
}

// done of the answer that ends a move is called when all of the resulting calls are done, each
// maybe repeatedly.
func TestDoneOfACollectionThatMoved(t *testing.T) {
	t.Parallel()
	_, above, _, running := collected(t, "x", "y")
	above.keep = true
	n := 0
	running.collection.CollectionChanged(nil, func() { n++ })
	if len(above.dones) != 3 {
		t.Fatalf("the watcher got %d calls, want 3", len(above.dones))
	}
	for i, done := range above.dones {
		if n != 0 {
			t.Fatalf("done was called after %d of 3 calls", i)
		}
		done()
		done()
	}
	if n != 1 {
		t.Errorf("done was called %d times, want once", n)
	}
}
