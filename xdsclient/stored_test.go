package xdsclient

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

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
