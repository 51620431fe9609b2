package dpdswrapper_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsresource"
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

func (w *fakeWatch) memberChanged(m xdsclient.Member, value any, err error) {
	w.client.t.Helper()
	w.once(func(done func()) { w.collection.MemberChanged(m, value, err, done) })
}

func (w *fakeWatch) collectionChanged(err error) {
	w.client.t.Helper()
	w.once(func(done func()) { w.collection.CollectionChanged(err, done) })
}

// done of the answer that ends a move is called when all of the resulting calls are done, each
// maybe repeatedly.
func TestDoneOfACollectionThatMoved(t *testing.T) {
	t.Parallel()
	f, above := newFixture(t, authorities), new(crowd)
	f.WatchCollection(xdsresource.ClusterType, clustersOfA, above)
	f.dpds("for-a", only(clusterType, "v", "1"))
	for _, id := range []string{"x", "y"} {
		f.find("Cluster").memberChanged(member(id), "first", nil)
	}
	f.dpds("for-a", only(clusterType, "v", "2"))
	above.keep = true
	n := 0
	f.find("Cluster").collection.CollectionChanged(nil, func() { n++ })
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
