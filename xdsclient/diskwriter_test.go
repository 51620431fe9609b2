package xdsclient

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// cacheIn has a client keep its resources in a directory for an hour.
func cacheIn(dir string) testutils.BootstrapOption {
	return testutils.TopLevel("resource_cache", map[string]any{"directory": dir, "max_age": "3600s"})
}

// overCache runs a test with a directory, in a bubble.
func overCache(t *testing.T, f func(t *testing.T, types *testTypes, server *script, dir string)) {
	t.Helper()
	bubble(t, func(t *testing.T) { f(t, newTestTypes(), newScript(t), t.TempDir()) })
}

// keep has a client over delta keep what the server sends for a cluster "a" and other resources.
func keep(t *testing.T, types *testTypes, server *script, dir string, parts ...part) {
	t.Helper()
	c := server.cachingClient(dir)
	defer c.Close()
	for _, name := range []string{"a", "b", "c"} {
		listen(t, c, types.clusters, name)
	}
	s := server.delta()
	s.request()
	s.send(types.clusters, "n1", parts...)
	s.request()
	s.quiet()
}

// cachingClient is a client of a server with the feature "delta" that keeps resources in a directory.
func (s *script) cachingClient(dir string, opts ...testutils.BootstrapOption) *XDSClient {
	return s.client(append(opts, cacheIn(dir), testutils.ServerFeatures("delta"))...)
}

// recordNames lists what a start would find, with a minus before what is refused.
func recordNames(t *testing.T, c *XDSClient) (names string) {
	t.Helper()
	contents, err := cacheOf(c.config).Load(time.Now())
	noError(t, err)
	for i := range contents.Records {
		r := &contents.Records[i]
		name := r.Name + r.Member
		if r.Refused {
			name = "-" + name
		}
		names += name + " "
	}
	return names
}

func sortedWords(s string) string {
	words := strings.Fields(s)
	slices.Sort(words)
	return strings.Join(words, " ")
}

// "The DPDS resource itself is always non-cacheable" (xRFC TP2), also if the server does not say so.
func TestDPDSIsNotKept(t *testing.T) {
	overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
		dpds := &ResourceType{TypeURL: dynparam.MapTypeURL, Name: "DPDS", Nameless: true, Decode: func(a *anypb.Any, _ DecodeOptions) (any, error) {
			return string(a.GetValue()), nil
		}}
		c := server.cachingClient(dir)
		d, _ := listen(t, c, dpds, "d")
		s := server.delta()
		s.request()
		listen(t, c, types.clusters, "a")
		s.request()
		s.send(dpds, "n1", func(r *discoveryv3.DeltaDiscoveryResponse) {
			r.Resources = append(r.Resources, &discoveryv3.Resource{Name: "d", Version: "1", Resource: &anypb.Any{TypeUrl: dpds.TypeURL}})
		})
		d.value()
		s.send(types.clusters, "n2", has("a", "1", cluster("a", "x")))
		s.request()
		s.request()
		c.Close()
		if got := recordNames(t, c); got != "a " {
			t.Errorf("the file has %q", got)
		}
	})
}

// Of several clients that share a file a start finds what the one had that wrote last; never a mixture, in
// which what one of them was refused would still be.
func TestClientsShareAFile(t *testing.T) {
	overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
		const n = 3
		var clients []*XDSClient
		var streams []*deltaStream
		for i := range n {
			c := server.cachingClient(dir)
			name := fmt.Sprint("own-", i)
			listen(t, c, types.clusters, name)
			listen(t, c, types.clusters, "shared")
			s := server.delta()
			s.request()
			s.send(types.clusters, "n1", has(name, "1", cluster(name, "x")), has("shared", "1", cluster("shared", "x")))
			s.request()
			clients, streams = append(clients, c), append(streams, s)
			pass(2 * writeDelay)
		}
		if got := sortedWords(recordNames(t, clients[0])); got != "own-2 shared" {
			t.Errorf("a start finds %q", got)
		}
		server.setRefuse(errRefused)
		for _, s := range streams[1:] {
			s.breakOff()
		}
		streams[0].send(types.clusters, "n2", lacks("shared"))
		streams[0].request()
		pass(10 * time.Minute)
		for _, c := range clients {
			c.Close()
			if got := sortedWords(recordNames(t, c)); got != "own-0" {
				t.Errorf("a start finds %q", got)
			}
		}
	})
}

// A watch that never gets an answer, here of a server that always lacks one, holds up writing until the file is to be
// written again because of its age.
func TestUnansweredWatchesDoNotHoldUpForEver(t *testing.T) {
	overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
		keep(t, types, server, dir, has("a", "1", cluster("a", "old")), has("b", "1", cluster("b", "old")), lacks("c"))
		c := server.cachingClient(dir)
		listen(t, c, types.clusters, "a")
		s := server.delta()
		s.request()
		s.send(types.clusters, "n1", has("a", "2", cluster("a", "new")))
		s.request()
		for began, i := time.Now(), 0; time.Since(began) < time.Hour/8+writePause; i++ {
			if got := sortedWords(recordNames(t, c)); time.Since(began) < time.Hour/8 && got != "a b" {
				t.Fatalf("after %v the file has %q", time.Since(began), got)
			}
			listen(t, c, types.clusters, fmt.Sprint("silent-", i))
			s.request()
			pass(defaultResourceTimeout - time.Second)
		}
		if got := recordNames(t, c); got != "a " {
			t.Errorf("the file has %q", got)
		}
	})
}

func noError(t *testing.T, err error) {
	t.Helper()
	xdstest.NoError(t, err)
}
