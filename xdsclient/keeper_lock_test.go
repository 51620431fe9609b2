//go:build darwin || linux

package xdsclient

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A process that waits for the lock of another one does not turn in circles, and says so.
func TestLockedDirectory(t *testing.T) {
	overCache(t, func(t *testing.T, types *testTypes, server *script, dir string) {
		c := server.cachingClient(dir)
		listen(t, c, types.clusters, "a")
		s := server.delta()
		s.request()
		d, err := os.Open(dir)
		noError(t, err)
		defer d.Close()
		if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX); err != nil {
			t.Skip("no locks: ", err)
		}
		s.send(types.clusters, "n1", has("a", "1", cluster("a", "x")))
		s.request()
		pass(time.Hour)
		c.Close()
		if k := c.keeper; !strings.Contains(k.lastError, "another process") || k.locked > int(2*time.Hour/writePause) {
			t.Errorf("%d attempts, and a warning of %q", k.locked, k.lastError)
		}
	})
}
