package xdsclient

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

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
	contents, faults := cacheOf(c.config).Load(time.Now())
	if len(faults) > 0 {
		t.Error(faults)
	}
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

// What the server refuses, takes away or wants nobody to keep is not in the file afterwards. What a
// transient error stands for stays.
func TestWhatIsKept(t *testing.T) {
	keepNone := func(r *discoveryv3.Resource) { r.CacheControl = &discoveryv3.Resource_CacheControl{DoNotCache: true} }
	shortLived := func(r *discoveryv3.Resource) { r.Ttl = durationpb.New(time.Hour) }
	for name, test := range map[string]struct {
		second []part
		want   string
	}{
		"a new version":      {[]part{has("a", "2", cluster("a", "y"))}, "a b "},
		"invalid":            {[]part{has("a", "2", badCluster("a", "y"))}, "b "},
		"removed":            {[]part{lacks("a")}, "b "},
		"NOT_FOUND":          {[]part{fails("a", codes.NotFound, "gone")}, "b "},
		"PERMISSION_DENIED":  {[]part{fails("a", codes.PermissionDenied, "no")}, "b "},
		"UNAVAILABLE":        {[]part{fails("a", codes.Unavailable, "later")}, "b a "},
		"do_not_cache":       {[]part{has("a", "2", cluster("a", "y")), changed(keepNone)}, "b "},
		"do_not_cache, same": {[]part{has("a", "1", cluster("a", "x")), changed(keepNone)}, "b "},
		"TTL":                {[]part{has("a", "2", cluster("a", "y")), changed(shortLived)}, "b "},
		"never there":        {[]part{lacks("c")}, "a b "},
		"invalid, and valid": {[]part{has("a", "2", badCluster("a", "y")), has("b", "2", cluster("b", "y"))}, "b "},
	} {
		for _, end := range []string{"written behind", "closed", "unwatched"} {
			t.Run(name+", "+end, func(t *testing.T) {
				overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
					c := server.cachingClient(dir)
					var stops []func()
					for _, name := range []string{"a", "b", "c"} {
						_, stop := listen(t, c, types.clusters, name)
						stops = append(stops, stop)
					}
					s := server.delta()
					s.request()
					s.send(types.clusters, "n1", has("a", "1", cluster("a", "x")), has("b", "1", cluster("b", "x")))
					s.request()
					pass(time.Minute)
					s.send(types.clusters, "n2", test.second...)
					s.request()
					synctest.Wait()
					switch end {
					case "written behind":
						pass(writePause + writeDelay)
					case "unwatched":
						for _, stop := range stops {
							stop()
						}
						fallthrough
					case "closed":
						c.Close()
					}
					synctest.Wait()
					got := recordNames(t, c)
					if sortedWords(got) != sortedWords(test.want) {
						t.Errorf("the file has %q, want %q", got, test.want)
					}
				})
			})
		}
	}
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

// A resource with a TTL is not kept, and neither if a heartbeat without one follows.
func TestTTLsAreNotKept(t *testing.T) {
	overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
		c := server.cachingClient(dir)
		listenBoth(t, c, types.clusters, "a", "b")
		s := server.delta()
		s.request()
		s.send(types.clusters, "n1", has("b", "1", cluster("b", "x")), has("a", "1", cluster("a", "x")),
			changed(func(r *discoveryv3.Resource) { r.Ttl = durationpb.New(time.Minute) }))
		s.request()
		s.send(types.clusters, "n2", has("a", "1", nil))
		s.request()
		c.Close()
		if got := recordNames(t, c); got != "b " {
			t.Errorf("the file has %q", got)
		}
	})
}

// Resources of a connected server do not become too old between two writings, however short max_age is.
func TestShortMaxAge(t *testing.T) {
	overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
		c := server.client(testutils.ServerFeatures("delta"), testutils.TopLevel("resource_cache", map[string]any{"directory": dir, "max_age": "20s"}))
		listen(t, c, types.clusters, "a")
		s := server.delta()
		s.request()
		s.send(types.clusters, "n1", has("a", "1", cluster("a", "x")))
		s.request()
		pass(writePause)
		for range 60 {
			pass(time.Second)
			if got := recordNames(t, c); got != "a " {
				t.Fatalf("the file has %q", got)
			}
		}
	})
}

// A directory that cannot be written is no reason to fail.
func TestDirectoryThatCannotBeWritten(t *testing.T) {
	overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
		path := filepath.Join(dir, "file")
		noError(t, os.WriteFile(path, nil, 0o600))
		keep(t, types, server, filepath.Join(path, "below"), has("a", "1", cluster("a", "x")))
	})
}

// Of several clients each has a file, and a start finds what the one had that wrote last; never a mixture, in
// which what one of them was refused would still be.
func TestClientsHaveFilesOfTheirOwn(t *testing.T) {
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

// A new version of a leads to d, which the server does not send. The client goes on with what it had before, so the
// file stays as it is, but for what is refused, until the server sends d or goes on without it.
func TestViewsThatAreNotWholeWait(t *testing.T) {
	sendsD, goesOn := has("d", "1", cluster("d", "fresh")), has("e", "2", cluster("e", "fresh"))
	for name, test := range map[string]struct {
		says    []part
		lost    bool
		before  string
		finally part
		want    string
		fresh   bool
	}{
		"lost, sends d":          {lost: true, before: "a b e", finally: sendsD, want: "a b d e"},
		"lost, lacks d":          {lost: true, before: "a b e", finally: lacks("d"), want: "a b e"},
		"silent, sends d":        {before: "a b e", finally: sendsD, want: "a b d e"},
		"silent, goes on":        {before: "a b e", finally: goesOn, want: "a b e"},
		"fails d, goes on":       {says: []part{fails("d", codes.Unavailable, "later")}, before: "a b e", finally: goesOn, want: "a b e"},
		"refuses b, sends d":     {says: []part{lacks("b")}, before: "a e", finally: sendsD, want: "a d e"},
		"refuses b and is lost":  {says: []part{lacks("b")}, lost: true, before: "a e", finally: sendsD, want: "a b d e"},
		"refuses d, is not lost": {says: []part{lacks("d")}, before: "a b e", finally: goesOn, want: "a b e", fresh: true},
	} {
		for _, closed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, closed %t", name, closed), func(t *testing.T) {
				overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
					c := server.cachingClient(dir)
					expect := func(want string, fresh bool) {
						t.Helper()
						synctest.Wait()
						contents, _ := cacheOf(c.config).Load(time.Now())
						for _, r := range contents.Records {
							if r.Name == "a" && bytes.Contains(r.Resource, []byte("fresh")) != fresh {
								t.Errorf("a is new: %t", !fresh)
							}
						}
						if got := sortedWords(recordNames(t, c)); got != want {
							t.Errorf("the file has %q, want %q", got, want)
						}
					}
					for _, name := range []string{"a", "b", "e"} {
						listen(t, c, types.clusters, name)
					}
					s := server.delta()
					s.request()
					s.send(types.clusters, "n1", has("a", "1", cluster("a", "x")), has("b", "1", cluster("b", "x")), has("e", "1", cluster("e", "x")))
					s.request()
					pass(time.Minute)
					s.send(types.clusters, "n2", has("a", "2", cluster("a", "fresh")))
					s.request()
					listen(t, c, types.clusters, "d")
					s.request()
					if test.says != nil {
						s.send(types.clusters, "n3", test.says...)
						s.request()
					}
					if test.lost {
						server.setRefuse(errRefused)
						s.breakOff()
						pass(time.Hour / 4)
					}
					pass(defaultResourceTimeout + 2*writePause)
					if closed {
						c.Close()
					}
					expect(test.before, test.fresh)
					if closed {
						return
					}
					if test.lost {
						server.setRefuse(nil)
						s = server.delta()
						s.request()
						s.send(types.clusters, "n4", has("a", "2", cluster("a", "fresh")), has("b", "1", cluster("b", "x")), has("e", "1", cluster("e", "x")))
						s.request()
					}
					s.send(types.clusters, "n5", test.finally)
					pass(2 * writePause)
					expect(test.want, true)
				})
			})
		}
	}
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

// While the file cannot be written, nothing is kept in memory that is not in use; and when it can be written, it
// has what is in use by then, and nothing that was refused.
func TestMemoryWhileTheFileCannotBeWritten(t *testing.T) {
	overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
		below := filepath.Join(dir, "cache")
		keep(t, types, server, below, has("a", "1", cluster("a", "old")), has("b", "1", cluster("b", "old")), lacks("c"))
		noError(t, os.Rename(below, below+".away"))
		noError(t, os.WriteFile(below, nil, 0o600))
		c := server.cachingClient(below)
		listen(t, c, types.clusters, "used")
		s := server.delta()
		s.request()
		s.send(types.clusters, "n", has("used", "1", cluster("used", "x")))
		s.request()
		pass(2 * writePause)
		for i := range 10 {
			name := fmt.Sprint("c", i)
			_, stop := listen(t, c, types.clusters, name)
			s.request()
			s.send(types.clusters, fmt.Sprint("n", i), has(name, "1", cluster(name, "x")))
			s.request()
			synctest.Wait()
			stop()
			s.request()
		}
		c.mu.Lock()
		if c.diskWriter.left != nil {
			t.Error("what is not in use is held")
		}
		c.mu.Unlock()
		synctest.Wait() // It must not make the directory between the two.
		noError(t, os.Remove(below))
		noError(t, os.Rename(below+".away", below))
		pass(2 * writePause)
		if got := sortedWords(recordNames(t, c)); got != "used" {
			t.Errorf("the file has %q", got)
		}
	})
}

func noError(t *testing.T, err error) {
	t.Helper()
	xdstest.NoError(t, err)
}
