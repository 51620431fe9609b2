package xdsclient

import (
	"testing"

	"github.com/dynxds/dynxds/testutils"
)

// A server that is listed twice is one server.
func TestServerListedTwice(t *testing.T) {
	overFleet(t, 1, func(t *testing.T, types *testTypes, f fleet) {
		f[0].setRefuse(errRefused)
		c := f.client(testutils.FurtherServer(uri(0)))
		a, stop := listen(t, c, types.clusters, "a")
		if err := a.fault(KindUnreachable); err.Server != uri(0) {
			t.Errorf("the error names %s, want the server once", err.Server)
		}
		stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := len(c.channels) + len(c.authorities); n > 0 {
			t.Errorf("%d channels and authorities are left", n)
		}
	})
}
