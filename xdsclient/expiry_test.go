package xdsclient

import (
	"testing"
	"testing/synctest"
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

// gRFC A57: a broken stream stops the timer, the next request starts it again.
func TestTimerStopsWithTheStream(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		listen(t, c, types.endpoints, "b")
		s := server.stream()
		pass(14 * time.Second)
		s.send(types.endpoints, "1", "n1", endpoints("b"))
		synctest.Wait()
		server.hold()
		server.stop()
		pass(20 * time.Second)
		server.start()
		server.stream()
		start := time.Now()
		for {
			if h := a.next(); h.err.Kind == KindTimeout {
				break
			}
		}
		xdstest.Equal(t, "given up after the new stream was open",
			15*time.Second, time.Since(start))
	})
}
