package xdsclient

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/testutils"
)

// becomes waits for a cluster with the text. That an error has ended may be told before.
func (e *ear) becomes(text string) {
	e.t.Helper()
	for e.value().(*clusterv3.Cluster).GetAltStatName() != text {
	}
}

// A client whose server does not answer starts from disk: at once if it cannot be reached, and else
// after the time that a server has to send a resource. It asks for everything all the same, and
// uses what the server sends.
func TestStartFromDisk(t *testing.T) {
	for name, away := range map[string]func(*script){
		"refuses connections": func(s *script) { s.stop() },
		"refuses streams":     func(s *script) { s.setRefuse(errRefused) },
		"is silent":           func(s *script) { s.open() },
		"is out of reach":     func(s *script) { s.hold() },
	} {
		t.Run(name, func(t *testing.T) {
			overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
				keep(t, types, server, dir, has("a", "1", cluster("a", "old")), has("b", "1", cluster("b", "same")))
				pass(10 * time.Minute)
				away(server)
				c := server.cachingClient(dir)
				m := newMeter()
				defer c.Attach("xds:///t", m)()
				a, _ := listen(t, c, types.clusters, "a")
				began := time.Now()
				a.cluster("old")
				if waited := time.Since(began); strings.HasPrefix(name, "refuses") != (waited == 0) || waited > defaultResourceTimeout {
					t.Errorf("that took %v", waited)
				}
				if name != "is silent" {
					a.ambient(KindUnreachable)
				}
				b, _ := listen(t, c, types.clusters, "b")
				b.cluster("same")
				d := c.Dump().Resources[0]
				if !d.Cached() || !d.FromDisk || d.Version != "1" || d.State != StateRequested || time.Since(d.LastUpdated).Round(time.Minute) != 10*time.Minute {
					t.Errorf("the dump has %+v", d)
				}
				const gauge = "dynxds.xds_client.resources_from_disk{xds:///t,#old,envoy.config.cluster.v3.Cluster}"
				if got := m.read(t); got[gauge] != 2 {
					t.Errorf("the metrics are %v, want 2 resources from disk", got)
				}
				server.setRefuse(nil)
				if name == "refuses connections" {
					server.start()
				}
				s := server.delta()
				if r := s.request(); len(r.GetInitialResourceVersions()) != 0 {
					t.Errorf("the server is told versions: %v", r)
				}
				if name != "is silent" {
					b.ambient(KindUnreachable)
				}
				s.send(types.clusters, "n1", has("a", "2", cluster("a", "new")))
				a.becomes("new")
				if name != "is silent" {
					b.cluster("same")
				}
				s.send(types.clusters, "n2", has("b", "1", cluster("b", "same")))
				b.cluster("same")
				if d := c.Dump().Resources[1]; d.FromDisk || d.State != StateACKed || m.read(t)[gauge] != 0 || types.decoded.Load() != 5 {
					t.Errorf("after %d decodings the dump has %+v", types.decoded.Load(), d)
				}
			})
		})
	}
}

// Another server comes before the disk (gRFC A71), and the preferred one comes back as it does without.
func TestFallbackComesBeforeTheDisk(t *testing.T) {
	overFleet(t, 2, func(t *testing.T, types *testTypes, f fleet) {
		dir := t.TempDir()
		start := func() (*XDSClient, *ear) {
			c := f.client(cacheIn(dir))
			a, _ := listen(t, c, types.clusters, "a")
			return c, a
		}
		answer := func(s *scriptStream, a *ear, text string) {
			s.send(types.clusters, text, "n-"+text, cluster("a", text))
			a.becomes(text)
			s.request()
		}
		c, a := start()
		answer(f[0].asked(), a, "high")
		c.Close()
		f[0].setRefuse(errRefused)
		c, a = start()
		f[0].open()
		low := f[1].asked()
		a.silent()
		answer(low, a, "low")
		c.Close()
		f[1].setRefuse(errRefused)
		_, a = start()
		a.cluster("low")
		a.ambient(KindUnreachable)
		f[0].setRefuse(nil)
		answer(f[0].asked(), a, "high again")
	})
}

// Nothing is used from disk once a server has answered, whatever it said, also for what is watched
// later.
func TestNothingFromDiskAfterAnAnswer(t *testing.T) {
	overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
		keep(t, types, server, dir, has("a", "1", cluster("a", "old")), has("b", "1", cluster("b", "old")))
		c := server.cachingClient(dir)
		a, _ := listen(t, c, types.clusters, "a")
		s := server.delta()
		s.request()
		s.send(types.clusters, "n1", fails("a", codes.Unavailable, "later"))
		a.fault(KindServer)
		server.setRefuse(errRefused)
		s.breakOff()
		b, _ := listen(t, c, types.clusters, "b")
		b.fault(KindUnreachable)
		pass(time.Minute)
		b.silent()
	})
}

// filesIn returns the files of a directory with resources.
func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.resources"))
	noError(t, err)
	return paths
}

// The file counts as none if it is corrupt or of another node, and what cannot be decoded is left out.
func TestUnusableFiles(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path, foreign string){
		"corrupt": func(t *testing.T, path, _ string) {
			b, err := os.ReadFile(path)
			noError(t, err)
			b[len(b)/2] ^= 1
			noError(t, os.WriteFile(path, b, 0o600))
		},
		"of another node": func(t *testing.T, path, foreign string) { noError(t, os.Rename(foreign, path)) },
		"a directory": func(t *testing.T, path, _ string) {
			noError(t, os.Remove(path))
			noError(t, os.Mkdir(path, 0o700))
		},
		"readable for a group": func(t *testing.T, path, _ string) { noError(t, os.Chmod(path, 0o640)) },
		"not decodable":        func(*testing.T, string, string) {},
	} {
		t.Run(name, func(t *testing.T) {
			overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
				keep(t, types, server, dir, has("a", "1", cluster("a", "x")))
				path := filesIn(t, dir)[0]
				other := server.cachingClient(dir, testutils.NodeField("id", "other"))
				listen(t, other, types.clusters, "a")
				s := server.delta()
				s.request()
				s.send(types.clusters, "n1", has("a", "1", cluster("a", "other")))
				s.request()
				other.Close()
				server.stop()
				foreign := slices.DeleteFunc(filesIn(t, dir), func(p string) bool { return p == path })
				spoil(t, path, foreign[0])
				c := server.cachingClient(dir)
				if name == "not decodable" {
					types.clusters.Decode = types.endpoints.Decode
				}
				a, _ := listen(t, c, types.clusters, "a")
				a.fault(KindUnreachable)
				a.silent()
			})
		})
	}
}

// What the bootstrap says about the client alone does not make the file foreign.
func TestFileAfterAChangeOfTheBootstrap(t *testing.T) {
	for key, value := range map[string]func(dir string) any{
		"dns_fallback":   func(string) any { return "never" },
		"resource_cache": func(dir string) any { return map[string]any{"directory": dir, "max_age": "7200s"} },
	} {
		t.Run(key, func(t *testing.T) {
			overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
				keep(t, types, server, dir, has("a", "1", cluster("a", "old")))
				server.stop()
				c := server.client(cacheIn(dir), testutils.ServerFeatures("delta"), testutils.TopLevel(key, value(dir)))
				a, _ := listen(t, c, types.clusters, "a")
				a.cluster("old")
			})
		})
	}
}

// Variants are found by their constraints (xRFC TP2), or by what constraints that are new choose;
// collections with their members.
func TestVariantsAndCollectionsOnDisk(t *testing.T) {
	overCache(t, func(t *testing.T, types *testTypes, _ *script, dir string) {
		const name = "xdstp://auth/envoy.config.cluster.v3.Cluster/a"
		const glob = collectionDir + "*"
		desk := func() *desk {
			k := newCoreWith(t, cacheIn(dir), testutils.ServerFeatures("delta", "dynamic_parameter_constraints"), testutils.Authority("auth", "", nil))
			return &desk{t: t, k: k, types: types, delta: true, asked: make(map[string]bool)}
		}
		d := desk()
		two, _ := d.watch(name, "shard=2")
		d.watch(name, "shard=3")
		all, _ := watchCollection(t, d.k.c, types.clusters, glob)
		d.listens()
		d.says(variantOf(name, "shard=2", "2"), variantOf(name, "shard=3", "3"), variantOf(collectionDir+"x", "", "member"))
		two.cluster("2")
		all.heard("member x = member", "collection")
		d.k.c.Close()

		d = desk()
		one, _ := d.watch(name, "shard=2")
		best, _ := d.watch(name, "shard=0-9")
		none, _ := d.watch(name, "shard=7")
		all, _ = watchCollection(t, d.k.c, types.clusters, glob)
		d.loses()
		one.cluster("2")
		best.cluster("3")
		none.fault(KindUnreachable)
		all.told("ambient: unreachable, collection, member x = member")
		d.k.channel.Opened()
		d.listens()
		d.says(variantOf(collectionDir+"y", "", "new"))
		all.told("collection, member x: does not exist, member y = new")
	})
}

// A resource that the server has denied for certain constraints is not used for them from what was kept for
// others, even if that matches. Nor is what was kept before the denial used for constraints that are new, as
// those of a client that starts without DPDS are.
func TestDeniedVariantOnDisk(t *testing.T) {
	for _, delta := range []bool{false, true} {
		t.Run(fmt.Sprintf("delta %t", delta), func(t *testing.T) {
			overCache(t, func(t *testing.T, types *testTypes, _ *script, dir string) {
				features := []string{"dynamic_parameter_constraints"}
				if delta {
					features = append(features, "delta")
				}
				desk := func() *desk {
					return &desk{t: t, k: newCoreWith(t, cacheIn(dir), testutils.ServerFeatures(features...)), types: types, delta: delta, asked: make(map[string]bool)}
				}
				d := desk()
				stays, _ := d.watch("a", "shard=1")
				one, stop := d.watch("b", "shard=1")
				d.listens()
				d.says(variantOf("a", "", "x"), variantOf("b", "", "x"))
				allHear("x", stays, one)
				pass(time.Minute)
				denied, _ := d.watch("a", "shard=2")
				moved, _ := d.watch("b", "shard=2")
				stop()
				d.listens()
				d.says(variantOf("a", "", "x"), refuses(codes.PermissionDenied, "a", "shard=2"), refuses(codes.PermissionDenied, "b", "shard=2"))
				denied.fault(KindServer)
				moved.fault(KindServer)
				pass(time.Minute)
				d.k.c.Close()

				d = desk()
				stays, _ = d.watch("a", "shard=1")
				other, _ := d.watch("a", "shard=3")
				denied, _ = d.watch("a", "shard=2")
				fresh, _ := d.watch("b")
				d.loses()
				allHear("x", stays, other)
				denied.fault(KindUnreachable)
				fresh.fault(KindUnreachable)
			})
		})
	}
}

// A client that started without DPDS and then moved to the constraints that DPDS has: the next one that starts
// without DPDS gets what the first one had last, not what it had under the same constraints before it moved.
func TestStartWithoutDPDSAfterAMove(t *testing.T) {
	for _, delta := range []bool{false, true} {
		t.Run(fmt.Sprintf("delta %t", delta), func(t *testing.T) {
			overCache(t, func(t *testing.T, types *testTypes, _ *script, dir string) {
				features := []string{"dynamic_parameter_constraints"}
				if delta {
					features = append(features, "delta")
				}
				desk := func() *desk {
					return &desk{t: t, k: newCoreWith(t, cacheIn(dir), testutils.ServerFeatures(features...)), types: types, delta: delta, asked: make(map[string]bool)}
				}
				d := desk()
				before, stop := d.watch("a", "shard=1")
				d.listens()
				d.says(variantOf("a", "", "old"))
				allHear("old", before)
				pass(time.Minute)
				moved, stopMoved := d.watch("a", "shard=1", "version=2")
				d.listens()
				d.says(variantOf("a", "version=2", "new"))
				moved.becomes("new")
				stop()
				d.listens()
				pass(time.Minute)
				stopMoved()
				d.k.c.Close()

				d = desk()
				fresh, _ := d.watch("a", "shard=1")
				d.loses()
				allHear("new", fresh)
			})
		})
	}
}

// told checks what the watcher heard, in the order of the alphabet. The beginning and the end of an error
// may be told once or twice.
func (e *collectionEar) told(want string) {
	e.t.Helper()
	synctest.Wait()
	var got []string
	for len(e.calls) > 0 {
		got = append(got, <-e.calls)
	}
	slices.Sort(got)
	if all := strings.Join(slices.Compact(got), ", "); all != want {
		e.t.Errorf("the watcher heard %q, want %q", all, want)
	}
}

// A collection that the server denies is not used from disk, though its members are not denied one by one.
func TestDeniedCollectionOnDisk(t *testing.T) {
	overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
		client := func() *XDSClient { return server.cachingClient(dir, testutils.Authority("auth", "", nil)) }
		c := client()
		e, _ := watchCollection(t, c, types.clusters, collectionName)
		s := server.delta()
		s.request()
		s.send(types.clusters, "n1", has(collectionDir+"x", "1", cluster(collectionDir+"x", "member")))
		e.heard("member x = member", "collection")
		s.send(types.clusters, "n2", fails(collectionName, codes.PermissionDenied, "not yours"))
		e.heard("ambient: server error")
		c.Close()
		server.stop()
		e, _ = watchCollection(t, client(), types.clusters, collectionName)
		e.heard("collection: unreachable")
	})
}

// A resource whose timer fires while it is read from disk, and cannot be used from there, fails.
func TestSilentServerAndUnusableResource(t *testing.T) {
	overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
		keep(t, types, server, dir, has("a", "1", cluster("a", "x")))
		types.clusters.Decode = types.endpoints.Decode
		server.open()
		a, _ := listen(t, server.cachingClient(dir), types.clusters, "a")
		pass(2 * defaultResourceTimeout)
		a.fault(KindTimeout)
	})
}

// A server that begins to speak after the resource timer, and whose full state lacks a resource that is
// in use from disk, has deleted it.
func TestFullStateWithoutAResourceFromDisk(t *testing.T) {
	overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
		c := server.client(cacheIn(dir))
		listen(t, c, types.clusters, "a")
		s := server.asked()
		s.send(types.clusters, "1", "n1", cluster("a", "old"))
		s.request()
		c.Close()
		c = server.client(cacheIn(dir))
		a, _ := listen(t, c, types.clusters, "a")
		b, _ := listen(t, c, types.clusters, "b")
		s = server.asked()
		a.cluster("old")
		b.fault(KindTimeout)
		s.send(types.clusters, "2", "n2", cluster("b", "new"))
		b.cluster("new")
		a.ambient(KindDoesNotExist)
		c.Close()
		if got := sortedWords(recordNames(t, c)); got != "b" {
			t.Errorf("the file has %q", got)
		}
	})
}

// A relay whose own servers do not answer has nothing to say of a resource. So a client that starts then goes on from
// disk, also for what it asks for later, and tells the relay's error beside it. The relay's first resource ends that.
//
//	0 s   client → relay   subscribe "a"
//	0 s   relay → client   error for "a": UNAVAILABLE, my server is unreachable
//	0 s   "a" comes from disk
func TestFromDiskBehindARelay(t *testing.T) {
	for kind, detail := range map[ErrorKind]*errdetails.ErrorInfo{KindUnreachable: dialect.Unreachable(), KindTimeout: dialect.Silent()} {
		t.Run(string(kind), func(t *testing.T) {
			overCache(t, func(t *testing.T, types *testTypes, relay *script, dir string) {
				keep(t, types, relay, dir, has("a", "1", cluster("a", "old")), has("b", "1", cluster("b", "old")), has("c", "1", cluster("c", "old")))
				relay.open()
				c := relay.cachingClient(dir)
				a, _ := listen(t, c, types.clusters, "a")
				unknown, _ := listen(t, c, types.clusters, "unknown")
				s := relay.delta()
				s.request()
				s.send(types.clusters, "n1", failsAsRelay("a", detail), failsAsRelay("unknown", detail))
				a.cluster("old")
				a.ambient(kind)
				unknown.fault(kind)
				s.request()

				b, stop := listen(t, c, types.clusters, "b")
				s.request()
				s.send(types.clusters, "n2", failsAsRelay("b", detail))
				b.cluster("old")
				b.ambient(kind)
				s.request()
				stop()
				b, _ = listen(t, c, types.clusters, "b")
				b.becomes("old")

				s.send(types.clusters, "n3", has("a", "2", cluster("a", "new")), failsAsRelay("b", detail))
				a.becomes("new")
				late, _ := listen(t, c, types.clusters, "c")
				s.send(types.clusters, "n4", failsAsRelay("c", detail))
				late.fault(kind)
			})
		})
	}
}

// Silent servers delay a start from disk by 15 s in all. What is not on disk, as DPDS never is, is late by then, also
// with the longer resource timer of gRFC A88; and an authority that is asked for something only after that does not
// wait again for the same server.
func TestSilenceEndsOnce(t *testing.T) {
	overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
		const laned = "xdstp://lanes/envoy.config.cluster.v3.Cluster/a"
		client := func() *XDSClient {
			return server.client(cacheIn(dir), testutils.Authority("lanes", "", nil), testutils.ServerFeatures("delta", "resource_timer_is_transient_error"))
		}
		c := client()
		listen(t, c, types.clusters, laned)
		s := server.delta()
		s.request()
		s.send(types.clusters, "n1", has(laned, "1", cluster(laned, "old")))
		s.request()
		c.Close()

		server.open()
		began := time.Now()
		c = client()
		first, _ := listen(t, c, types.clusters, "first")
		if e := first.fault(KindTimeout); !e.Transient || !strings.Contains(e.Error(), "within 15s") {
			t.Errorf("the error is %v, transient: %t", e, e.Transient)
		}
		a, _ := listen(t, c, types.clusters, laned)
		a.cluster("old")
		if got := time.Since(began); got != defaultResourceTimeout {
			t.Errorf("that took %v, want %v", got, defaultResourceTimeout)
		}
		s = server.delta()
		s.request()
		s.send(types.clusters, "n1", has("first", "1", cluster("first", "x")))
		first.cluster("x")
	})
}

// failsAsRelay is an error with a detail by which a relay says that its own servers have not answered.
func failsAsRelay(name string, detail *errdetails.ErrorInfo) part {
	return func(r *discoveryv3.DeltaDiscoveryResponse) {
		e := resourceError(name, codes.Unavailable, "the relay has nothing")
		packed, err := anypb.New(detail)
		if err != nil {
			panic(err)
		}
		e.ErrorDetail.Details = append(e.ErrorDetail.Details, packed)
		r.ResourceErrors = append(r.ResourceErrors, e)
	}
}

// A file that is read only after the servers were given up is used all the same.
func TestSlowDisk(t *testing.T) {
	overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
		keep(t, types, server, dir, has("a", "1", cluster("a", "old")))
		server.stop()
		c := server.cachingClient(filepath.Join(dir, "none"))
		a, _ := listen(t, c, types.clusters, "a")
		a.fault(KindUnreachable)
		synctest.Wait()
		there := server.cachingClient(dir)
		there.Close()
		c.mu.Lock()
		c.diskWriter.file = there.diskWriter.file
		c.mu.Unlock()
		c.diskWriter.load()
		a.cluster("old")
		a.ambient(KindUnreachable)
	})
}
