package xdsclient

import (
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/dynxds/dynxds/testutils"
)

// What the bootstrap says about the client alone does not make the file foreign. Another node does.
func TestFileAfterAChangeOfTheBootstrap(t *testing.T) {
	for key, value := range map[string]func(dir string) any{
		"dns_fallback":   func(string) any { return "never" },
		"resource_cache": func(dir string) any { return map[string]any{"directory": dir, "max_age": "7200s"} },
		"node":           func(string) any { return map[string]any{"id": "other"} },
	} {
		t.Run(key, func(t *testing.T) {
			overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
				keep(t, types, server, dir, has("a", "1", cluster("a", "old")))
				server.stop()
				c := server.client(cacheIn(dir), testutils.ServerFeatures("delta"), testutils.TopLevel(key, value(dir)))
				a, _ := listen(t, c, types.clusters, "a")
				if key == "node" {
					a.fault(KindUnreachable)
				} else {
					a.cluster("old")
				}
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
