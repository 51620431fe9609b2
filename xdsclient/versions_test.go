package xdsclient

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// There is one version by name, of which a server takes it that all subscriptions have it. So one that began
// while the server was away, to a member of a collection that the client has, or to the collection of a
// resource that it has, has the server asked for all again.
func TestVersionsOfNamesBesideTheirCollection(t *testing.T) {
	name := collectionDir + "a"
	for _, first := range []string{"name", "collection"} {
		t.Run(first+" first", func(t *testing.T) {
			overCollections(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
				watch := map[string]func(){
					"name":       func() { listen(t, c, types.clusters, name) },
					"collection": func() { watchCollection(t, c, types.clusters, collectionName) },
				}
				watch[first]()
				listen(t, c, types.clusters, "other") // which is asked for again in any case
				listen(t, c, types.clusters, "another")
				s := server.delta()
				s.request()
				s.send(types.clusters, "n1", has(name, "1", cluster(name, "x")), has("other", "1", cluster("other", "")), has("another", "1", cluster("another", "")))
				s.request()
				delete(watch, first)
				server.setRefuse(status.Error(codes.Unavailable, "off for lunch"))
				s.breakOff()
				pass(time.Minute)
				for _, second := range watch {
					second()
				}
				server.setRefuse(nil)
				s = server.delta()
				if version, ok := s.request().GetInitialResourceVersions()[name]; version != "" || !ok {
					t.Errorf("the client says that it has version %q, want none", version)
				}
			})
		})
	}
}

// A delta response does not say what it answers. One to a name that comes after the wildcard was asked for
// is taken as the beginning of the answer for both. If the stream ends before the rest, the wildcard lacks
// the resources that the client had before by their names, and has to be sent these.
func TestVersionsOfNamesThatTheirCollectionLacks(t *testing.T) {
	for _, test := range []struct{ name, collection, prefix string }{
		{"wildcard", wildcard, ""},
		{"glob collection", collectionName, collectionDir},
	} {
		t.Run(test.name, func(t *testing.T) {
			overCollections(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
				a, b := test.prefix+"a", test.prefix+"b"
				listen(t, c, types.clusters, a)
				s := server.delta()
				s.request()
				s.send(types.clusters, "n1", has(a, "1", cluster(a, "x")))
				s.request()
				listen(t, c, types.clusters, b)
				s.request()
				e, _ := watchCollection(t, c, types.clusters, test.collection)
				s.request()
				s.send(types.clusters, "n2", has(b, "1", cluster(b, "x")))
				s.request()
				e.heard("member b = x", "collection")
				s.breakOff()
				s = server.delta()
				versions := s.request().GetInitialResourceVersions()
				if version, ok := versions[a]; version != "" || !ok {
					t.Errorf("the client says that it has version %q of what the collection lacks, want none", version)
				}
				if versions[b] != "1" {
					t.Errorf("the client says that it has version %q of what the collection has, want 1", versions[b])
				}
				s.send(types.clusters, "n1", has(a, "1", cluster(a, "x")))
				s.request()
				e.heard("member a = x")
				s.breakOff()
				s = server.delta()
				if version := s.request().GetInitialResourceVersions()[a]; version != "1" {
					t.Errorf("the client says that it has version %q of what both have, want 1", version)
				}
			})
		})
	}
}
