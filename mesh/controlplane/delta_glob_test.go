package controlplane_test

import (
	"strings"
	"testing"

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

func TestNames_GlobIsNoResource(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	_, err := s.store.Update(func(tx *controlplane.Tx) { tx.Set(cluster(in("foo/*")), cluster(in("%2A"))) })
	if err == nil || strings.Count(err.Error(), "glob collection") != 2 {
		t.Errorf("error: %v", err)
	}
}
