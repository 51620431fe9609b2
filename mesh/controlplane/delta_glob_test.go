package controlplane_test

import (
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/mesh/controlplane"
)

// in is a Cluster's name of xRFC TP1.
func in(id string) string { return "xdstp://auth/envoy.config.cluster.v3.Cluster/" + id }

func clusters(ids ...string) []proto.Message {
	var all []proto.Message
	for _, id := range ids {
		all = append(all, cluster(in(id)))
	}
	return all
}

func changedIn(id string) *clusterpb.Cluster { return changed(in(id), "new") }

// xRFC TP1, "Glob": members coming, changing and going.
func TestDelta_GlobCollection(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.set(t, clusters("foo/bar", "foo/baz", "foo/deep/er", "foobar", "other/bar")...)
	s.set(t, cluster("old-style"), cluster("xdstp://other/envoy.config.cluster.v3.Cluster/foo/bar"))
	c := s.openDelta(t)
	c.subscribe(cds, in("foo/*"))
	c.ack(c.want(cds, in("foo/bar"), in("foo/baz")))
	c.fence()

	s.set(t, changedIn("foo/bar"), changedIn("foo/deep/er"), changedIn("other/bar"), cluster(in("foo/baz")))
	c.want(cds, in("foo/bar"))
	s.set(t, clusters("foo/new")...)
	c.want(cds, in("foo/new"))
	s.delete(t, cds, in("foo/bar"), in("foo/baz"), in("other/bar"))
	c.want(cds, "-"+in("foo/bar"), "-"+in("foo/baz"))
	c.fence()
}

// xRFC TP1, "Glob": globs can exist in arbitrary path locations, and several
// may be subscribed to.
func TestDelta_SeveralGlobs(t *testing.T) {
	s, c := startDelta(t, clusters("top", "a/1", "a/b/2")...)
	c.subscribe(cds, in("*"), in("a/*"), in("a/b/*"))
	c.want(cds, in("top"), in("a/1"), in("a/b/2"))
	c.unsubscribe(cds, in("a/*"))
	c.fence()
	s.set(t, changedIn("top"), changedIn("a/1"), changedIn("a/b/2"))
	c.want(cds, in("top"), in("a/b/2"))
	c.subscribe(cds, in("a/*"))
	c.want(cds, in("a/1"))
}

// xRFC TP1, "Glob": an empty collection is answered by its name in
// removed_resources.
func TestDelta_EmptyGlobIsNamedAsRemoved(t *testing.T) {
	s, c := startDelta(t)
	c.subscribe(cds, in("foo/*"))
	c.ack(c.want(cds, "-"+in("foo/*")))
	c.fence()
	s.set(t, clusters("foo/bar")...)
	c.want(cds, in("foo/bar"))
	s.delete(t, cds, in("foo/bar"))
	c.want(cds, "-"+in("foo/bar"))
	c.fence()
	c.subscribe(cds, in("foo/*"))
	c.want(cds, "-"+in("foo/*"))
}

// Envoy, "Subscribing to Resources", for a glob.
func TestDelta_RepeatedGlobIsAnsweredAgain(t *testing.T) {
	_, c := startDelta(t, clusters("foo/bar", "foo/baz")...)
	for range 3 {
		c.subscribe(cds, in("foo/*"))
		c.want(cds, in("foo/bar"), in("foo/baz"))
	}
	c.fence()
}

// xRFC TP1, "Glob": the context parameters of the request must be matched.
func TestDelta_GlobMatchesContextParametersExactly(t *testing.T) {
	_, c := startDelta(t, clusters("foo/bar", "foo/bar?some=thing", "foo/bar?some=thing&more=1", "foo/baz?some=other")...)
	c.subscribe(cds, in("foo/*?some=thing"))
	c.want(cds, in("foo/bar?some=thing"))
	c.subscribe(cds, in("foo/*"))
	c.want(cds, in("foo/bar"))
	c.subscribe(cds, in("foo/*?some=thing&more=1"))
	c.want(cds, in("foo/bar?some=thing&more=1"))
	c.fence()
}

// Envoy, "Unsubscribing from Resources", for names that a glob covers.
func TestDelta_GlobAndName(t *testing.T) {
	s, c := startDelta(t, clusters("foo/bar", "foo/baz")...)
	c.subscribe(cds, in("foo/*"), in("foo/bar"), in("foo/missing"))
	c.want(cds, in("foo/bar"), in("foo/baz"), "-"+in("foo/missing"))
	s.set(t, changedIn("foo/bar"))
	c.want(cds, in("foo/bar"))
	c.unsubscribe(cds, in("foo/bar"), in("foo/missing"))
	c.want(cds, in("foo/bar"), "-"+in("foo/missing"))
	c.subscribe(cds, in("foo/bar"))
	c.want(cds, in("foo/bar"))
	c.unsubscribe(cds, in("foo/*"))
	c.fence()
	s.set(t, cluster(in("foo/bar")), changedIn("foo/baz"))
	c.want(cds, in("foo/bar"))
}

func TestDelta_GlobAndWildcardSendOneCopy(t *testing.T) {
	s, c := startDelta(t, clusters("foo/bar")...)
	c.subscribe(cds, "*", in("foo/*"), in("foo/bar"))
	c.want(cds, in("foo/bar"))
	c.subscribe(cds, "*", in("foo/*"), in("foo/bar"))
	c.want(cds, in("foo/bar"))
	s.delete(t, cds, in("foo/bar"))
	c.want(cds, "-"+in("foo/bar"))
	c.fence()
}

// SotW has no globs: the name is one that does not exist.
func TestSotW_GlobIsAName(t *testing.T) {
	s, c := startSotW(t, clusters("foo/bar")...)
	c.subscribe(cds, in("foo/*"))
	c.want(cds)
	s.set(t, changedIn("foo/bar"))
	c.fence()
}

// xRFC TP1, "Normalization": the client is answered under its own spelling.
func TestNames_OfTP1AreComparedCanonically(t *testing.T) {
	t.Parallel()
	stored, asked := in("foo/b%61r?a=1&b=2"), in("f%6Fo/bar?b=2&a=%31")
	s := startServer(t)
	s.set(t, cluster(stored))
	if s.store.Get(cds, asked) != s.store.Get(cds, stored) || s.store.Get(cds, asked) == nil {
		t.Fatal("the two spellings are two names")
	}
	c, old := s.openDelta(t), s.open(t)
	c.subscribe(cds, asked)
	c.ack(c.want(cds, asked))
	c.subscribe(cds, stored) // the same again, under the first spelling
	c.want(cds, asked)
	other := s.openDelta(t) // spells both otherwise
	c.subscribe(cds, in("x"))
	c.want(cds, "-"+in("x"))
	other.subscribe(cds, stored)
	other.want(cds, stored)
	other.subscribe(cds, in("%78"))
	other.want(cds, "-"+in("%78"))
	old.subscribe(cds, asked)
	old.want(cds, stored)
	glob := s.openDelta(t)
	glob.subscribe(cds, in("f%6fo/*?b=2&a=1"))
	glob.want(cds, stored)

	s.set(t, changed(asked, "new"))
	c.want(cds, asked)
	other.want(cds, stored)
	old.want(cds, asked)
	glob.want(cds, asked)
	s.delete(t, cds, stored)
	c.want(cds, "-"+asked)
	old.want(cds)
	glob.want(cds, "-"+asked)
}

func TestNames_GlobIsNoResource(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	_, err := s.store.Update(func(tx *controlplane.Tx) { tx.Set(cluster(in("foo/*")), cluster(in("%2A"))) })
	if err == nil || strings.Count(err.Error(), "glob collection") != 2 {
		t.Errorf("error: %v", err)
	}
}
