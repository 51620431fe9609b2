package xdsclient

import (
	"path/filepath"
	"testing"
	"testing/synctest"
)

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
