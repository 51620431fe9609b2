package controlplane_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
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
