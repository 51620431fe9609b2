package xdsclient

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// want is what a test expects of a request.
type want struct {
	typ            *ResourceType
	names          []string
	version, nonce string
	nack           bool
	node           bool
}

func check(t *testing.T, got *discoveryv3.DiscoveryRequest, w want) {
	t.Helper()
	if got.GetTypeUrl() != w.typ.TypeURL || !slices.Equal(got.GetResourceNames(), w.names) ||
		got.GetVersionInfo() != w.version || got.GetResponseNonce() != w.nonce ||
		(got.GetErrorDetail() != nil) != w.nack || (got.GetNode() != nil) != w.node {
		t.Fatalf("got request %v, want %s with names %q, version %q, nonce %q, a NACK: %v, a node: %v",
			got, w.typ.Name, w.names, w.version, w.nonce, w.nack, w.node)
	}
}

// Envoy, xDS protocol, "Basic Protocol Overview": only the first request of a
// stream has to carry the node.
func TestNodeOnlyInFirstRequestOfStream(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		listen(t, c, types.clusters, "a")
		s := server.stream()
		first := s.request()
		check(t, first, want{typ: types.clusters, names: []string{"a"}, node: true})
		if first.GetNode().GetId() != "node-1" || len(first.GetNode().GetClientFeatures()) == 0 {
			t.Errorf("node is %v, want that of the bootstrap", first.GetNode())
		}
		listen(t, c, types.endpoints, "a")
		check(t, s.request(), want{typ: types.endpoints, names: []string{"a"}})

		s.breakOff()
		s = server.stream()
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, node: true})
		check(t, s.request(), want{typ: types.endpoints, names: []string{"a"}})
		s.quiet()
	})
}

// Envoy, xDS protocol, "ACK/NACK and resource type instance version": each type
// has a version and a nonce of its own.
func TestVersionAndNonceArePerType(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		s := server.asked()
		s.send(types.clusters, "c1", "cn1", cluster("a", ""))
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, version: "c1", nonce: "cn1"})
		a.cluster("")

		b, _ := listen(t, c, types.endpoints, "b")
		check(t, s.request(), want{typ: types.endpoints, names: []string{"b"}})
		s.send(types.endpoints, "e1", "en1", endpoints("b"))
		check(t, s.request(), want{typ: types.endpoints, names: []string{"b"}, version: "e1", nonce: "en1"})
		b.value()

		s.send(types.clusters, "c2", "cn2", cluster("a", "new"))
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, version: "c2", nonce: "cn2"})
		listen(t, c, types.endpoints, "d")
		check(t, s.request(), want{typ: types.endpoints, names: []string{"b", "d"}, version: "e1", nonce: "en1"})
		s.quiet()
	})
}

// gRFC A46: the good resources of a response that is NACKed are used. Envoy, xDS
// protocol, "NACK": the version stays that of the last response that was accepted.
func TestNACKListsAllFaultsAndUsesTheGoodResources(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, b := listenBoth(t, c, types.clusters, "a", "b")
		d, _ := listen(t, c, types.clusters, "d")
		s := server.asked()
		s.send(types.clusters, "1", "n1", cluster("a", "1"), cluster("b", "1"))
		s.request()
		allHear("1", a, b)

		s.send(types.clusters, "2", "n2", badCluster("a", "lb_policy: unknown"), cluster("b", "2"), badCluster("d", "name: too short; type: missing"))
		nack := s.request()
		check(t, nack, want{typ: types.clusters, names: []string{"a", "b", "d"}, version: "1", nonce: "n2", nack: true})
		xdstest.Equal(t, "error_detail has code",
			codes.InvalidArgument, codes.Code(nack.GetErrorDetail().GetCode()))
		const text = `2 of 3 Cluster resources are invalid; Cluster "a": lb_policy: unknown; Cluster "d": name: too short; type: missing`
		if got := nack.GetErrorDetail().GetMessage(); got != text {
			t.Errorf("error_detail is\n%s\nwant\n%s", got, text)
		}
		a.ambient(KindInvalid)
		b.cluster("2")
		d.fault(KindInvalid)

		s.send(types.clusters, "3", "n3", cluster("a", "3"), cluster("b", "2"), cluster("d", "3"))
		check(t, s.request(), want{typ: types.clusters, names: []string{"a", "b", "d"}, version: "3", nonce: "n3"})
		allHear("3", a, d)
		b.silent()
	})
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
		xdstest.NoError(t, s.wire.Send(r))
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

// Envoy, xDS protocol, "Unsubscribing From Resources".
func TestStoppedWatchLeavesTheNextRequest(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		listen(t, c, types.clusters, "a")
		_, stopB := listen(t, c, types.clusters, "b")
		_, stopB2 := listen(t, c, types.clusters, "b")
		s := server.stream()
		check(t, s.request(), want{typ: types.clusters, names: []string{"a", "b"}, node: true})
		stopB()
		s.quiet() // b has another watcher
		stopB2()
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}})
		stopB2()
		stopB()
		s.quiet()
	})
}

// Envoy, xDS protocol, "How the client specifies what resources to return": an
// empty list unsubscribes once names were listed on the stream, and asks for every
// resource if not.
func TestTypeWithoutWatches(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		listen(t, c, types.endpoints, "e")
		a, stop := listen(t, c, types.clusters, "a")
		s := server.asked()
		s.request()
		s.send(types.clusters, "1", "n1", cluster("a", ""))
		s.request()
		a.cluster("")

		stop()
		check(t, s.request(), want{typ: types.clusters, version: "1", nonce: "n1"})
		// The server may have sent a response meanwhile. It is answered.
		s.send(types.clusters, "2", "n2", cluster("a", "late"))
		check(t, s.request(), want{typ: types.clusters, version: "2", nonce: "n2"})

		// On a new stream the type is not mentioned: that would be a wildcard.
		s.breakOff()
		s = server.stream()
		check(t, s.request(), want{typ: types.endpoints, names: []string{"e"}, node: true})
		s.quiet()
		// Nothing of the type is cached, so neither is its version.
		listen(t, c, types.clusters, "a")
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}})
	})
}

// A watch that ends before the first request of its type must not become a
// wildcard.
func TestWatchStoppedBeforeItsFirstRequestIsNeverSent(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		listen(t, c, types.endpoints, "e")
		_, stop := listen(t, c, types.clusters, "a")
		stop()
		s := server.stream()
		check(t, s.request(), want{typ: types.endpoints, names: []string{"e"}, node: true})
		s.quiet()

		// The same on an open stream, while requests are held back.
		busy := newEar(t)
		busy.keepDone = true
		c.Watch(types.endpoints, "e", busy)
		s.send(types.endpoints, "1", "n1", endpoints("e"))
		h := busy.next()
		_, stop = listen(t, c, types.clusters, "a")
		stop()
		h.done()
		check(t, s.request(), want{typ: types.endpoints, names: []string{"e"}, version: "1", nonce: "n1"})
		s.quiet()
	})
}

// A server that was not told that a watch ended would not send the resource again:
// what is cached stays until it is told.
func TestWatchAgainBeforeTheServerKnows(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		busy := newEar(t)
		busy.keepDone = true
		c.Watch(types.clusters, "busy", busy)
		a, stop := listen(t, c, types.clusters, "a")
		s := server.asked()
		s.send(types.clusters, "1", "n1", cluster("a", "1"), cluster("busy", "1"))
		s.request()
		a.cluster("1")
		h := busy.next() // not done: requests are held back
		stop()
		again, stopAgain := listen(t, c, types.clusters, "a")
		again.cluster("1")
		h.done()
		s.quiet()

		stopAgain()
		check(t, s.request(), want{typ: types.clusters, names: []string{"busy"}, version: "1", nonce: "n1"})
		late, _ := listen(t, c, types.clusters, "a")
		check(t, s.request(), want{typ: types.clusters, names: []string{"a", "busy"}, version: "1", nonce: "n1"})
		late.silent() // the server was told, so it has to send it again
	})
}

// Envoy, xDS protocol, "ACK/NACK and resource type instance version": the first
// request on a new stream has the last version that was accepted, and no nonce.
func TestReconnectResubscribesWithLastAcceptedVersion(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		listen(t, c, types.clusters, "a")
		listen(t, c, types.endpoints, "a")
		s := server.asked()
		s.request()
		s.send(types.clusters, "1", "n1", cluster("a", ""))
		s.request()
		s.send(types.clusters, "2", "n2", badCluster("a", "name"))
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, version: "1", nonce: "n2", nack: true})
		s.breakOff()
		s = server.stream()
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, version: "1", node: true})
		check(t, s.request(), want{typ: types.endpoints, names: []string{"a"}})
		s.quiet()
	})
}

// A response for a type that was never subscribed to is neither ACKed nor NACKed:
// the client cannot tell whether it is valid.
func TestResponseForUnknownTypeIsIgnored(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		s := server.asked()
		s.send(types.endpoints, "1", "n1", endpoints("a"))
		s.send(types.clusters, "1", "n2", cluster("a", ""))
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, version: "1", nonce: "n2"})
		a.cluster("")
		xdstest.Equal(t, "Stats().Ignored", 1, c.Stats().Ignored)
	})
}

// The stream exists only while there are watches, and comes back with them.
func TestStreamLivesWhileThereAreWatches(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		server.open()
		pass(time.Hour)
		server.opened(0)
		for round := range 3 {
			server.hold()
			a, stopA := listen(t, c, types.clusters, "a")
			_, stopB := listen(t, c, types.endpoints, "a")
			s := server.stream()
			check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, node: true})
			s.request()
			s.send(types.clusters, "1", "n1", cluster("a", fmt.Sprint(round)))
			s.request()
			a.cluster(fmt.Sprint(round))
			stopA()
			synctest.Wait()
			if s.wire.Context().Err() != nil {
				t.Fatal("the stream ended although there is a watch")
			}
			stopB()
			synctest.Wait()
			if s.wire.Context().Err() == nil {
				t.Fatal("the stream is open although there is no watch")
			}
		}
	})
}
