package xdsclient

import (
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// heardAt returns how long after start the next call came.
func heardAt(e *ear, start time.Time, kind ErrorKind) time.Duration {
	e.t.Helper()
	e.fault(kind)
	return time.Since(start)
}

// gRFC A57, "Handling Resources That Do Not Exist": the timer starts when the
// request is sent on a connection that is ready.
func TestTimerDoesNotRunWithoutConnection(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		pass(9 * time.Second) // the dial has 10 s
		a.silent()
		start := time.Now()
		server.stream()
		xdstest.Equal(t, "given up after the stream was open",
			15*time.Second, heardAt(a, start, KindTimeout))
	})
}
