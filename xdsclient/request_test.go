package xdsclient

import (
	"fmt"
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// want is what a test expects of a request.
type want struct {
	typ            *ResourceType
	names          []string
	version, nonce string
	nack           bool
	node           bool
}

func check(t *testing.T, got *discoverypb.DiscoveryRequest, w want) {
	t.Helper()
	if got.GetTypeUrl() != w.typ.TypeURL || !slices.Equal(got.GetResourceNames(), w.names) ||
		got.GetVersionInfo() != w.version || got.GetResponseNonce() != w.nonce ||
		(got.GetErrorDetail() != nil) != w.nack || (got.GetNode() != nil) != w.node {
		t.Fatalf("got request %v, want %s with names %q, version %q, nonce %q, a NACK: %v, a node: %v",
			got, w.typ.Name, w.names, w.version, w.nonce, w.nack, w.node)
	}
}

// Watches that begin before a request can be sent go out together.
func TestManyWatchesAreOneRequestPerType(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		var names []string
		for i := range 100 {
			name := fmt.Sprintf("c%02d", i)
			names = append(names, name)
			listen(t, c, types.clusters, name)
			listen(t, c, types.endpoints, name)
		}
		s := server.stream()
		check(t, s.request(), want{typ: types.clusters, names: names, node: true})
		check(t, s.request(), want{typ: types.endpoints, names: names})
		s.quiet()
	})
}

// The Watcher contract: watches that begin before done go into one batch.
func TestWatchesFromWatchersAreOneBatch(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		var clusters []*ear
		for i := range 10 {
			e := newEar(t)
			e.keepDone = true
			name := fmt.Sprint("c", i)
			e.on = func(heard) { c.Watch(types.endpoints, name, newEar(t)) }
			c.Watch(types.clusters, name, e)
			clusters = append(clusters, e)
		}
		s := server.stream()
		names := s.request().GetResourceNames()
		r := &discoveryv3.DiscoveryResponse{TypeUrl: types.clusters.TypeURL, VersionInfo: "1", Nonce: "n"}
		for _, name := range names {
			r.Resources = append(r.Resources, pack(t, cluster(name, "")))
		}
		s.respond(r)
		// When all watchers are called, the ACK is out, and nothing else.
		check(t, s.request(), want{typ: types.clusters, names: names, version: "1", nonce: "n"})
		for i, e := range clusters {
			s.quiet()
			h := e.next()
			if i == len(clusters)-1 {
				listen(t, c, types.clusters, "another")
			}
			h.done()
		}
		check(t, s.request(), want{typ: types.clusters, names: append([]string{"another"}, names...), version: "1", nonce: "n"})
		check(t, s.request(), want{typ: types.endpoints, names: names})
		s.quiet()
	})
}
