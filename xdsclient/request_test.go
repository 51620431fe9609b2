package xdsclient

import (
	"fmt"
	"slices"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
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

func TestSotWRequests(t *testing.T) {
	runTranscripts(t, []transcriptTest{
		// A response for a type that was never subscribed to is neither ACKed nor NACKed: the client cannot
		// tell whether it is valid.
		{name: "response for an unknown type", over: "SotW", steps: `
			watch a      -> stream; req a
			send e:1 a
			send 1 a=x   -> ack 1 a; a = x
		`, then: func(x *transcript) { xdstest.Equal(x.t, "Stats().Ignored", 1, x.c.Stats().Ignored) }},
		{name: "stream lives while there are watches", over: "SotW", steps: `
			wait 1h
			watch a e:a  -> stream; req a; e.req a
			send 1 a=x   -> ack 1 a; a = x
			stop a       -> ack 1
			stop e:a     -> closed
			wait 1h
			watch a      -> stream; req a
			streams 2
		`},
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

// What a batch starts and stops goes out together, also without a response that
// would hold requests back.
func TestBatchIsOneRequestPerType(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		_, stop := listen(t, c, types.clusters, "before")
		s := server.stream()
		check(t, s.request(), want{typ: types.clusters, names: []string{"before"}, node: true})
		var names []string
		c.Batch(func() {
			c.Batch(func() {}) // ends within the other
			for i := range 100 {
				names = append(names, fmt.Sprintf("c%02d", i))
				listen(t, c, types.clusters, names[i])
				s.quiet()
			}
			listen(t, c, types.endpoints, "e")
			stop()
		})
		check(t, s.request(), want{typ: types.clusters, names: names})
		check(t, s.request(), want{typ: types.endpoints, names: []string{"e"}})
		s.quiet()
	})
}

// A batch that changes nothing in the end sends nothing.
func TestBatchThatChangesNothing(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		listen(t, c, types.clusters, "a")
		_, stop := listen(t, c, types.clusters, "b")
		s := server.asked()
		c.Batch(func() {
			stop()
			s.quiet()
			listen(t, c, types.clusters, "b")
			_, stop = listen(t, c, types.clusters, "c")
			s.quiet()
			stop()
		})
		s.quiet()
	})
}

// Without constraints a watch by locator is one by name.
func TestLocatorWithoutConstraints(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		e, _ := listen(t, c, types.clusters, "a")
		s := server.asked()
		s.send(types.clusters, "1", "n1", cluster("a", "text"))
		e.cluster("text")
		s.request()
		byLocator := newEar(t)
		c.WatchLocator(types.clusters, "a", dynparam.Constraints{}, byLocator)
		byLocator.cluster("text")
		s.quiet()
	})
}
