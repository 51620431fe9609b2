package xdsclient

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// heardAt returns how long after start the next call came.
func heardAt(e *ear, start time.Time, kind ErrorKind) time.Duration {
	e.t.Helper()
	e.fault(kind)
	return time.Since(start)
}

// Envoy, xDS protocol, "Knowing When a Requested Resource Does Not Exist": 15 s
// after it was asked for.
func TestResourceThatDoesNotComeDoesNotExist(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		start := time.Now()
		a, _ := listen(t, c, types.clusters, "a")
		b, _ := listen(t, c, types.endpoints, "b")
		s := server.stream()
		pass(10 * time.Second)
		d, _ := listen(t, c, types.endpoints, "d")
		s.send(types.endpoints, "1", "n1", endpoints("b"))
		b.value()
		xdstest.Equal(t, "a was given up after",
			15*time.Second, heardAt(a, start, KindDoesNotExist))
		xdstest.Equal(t, "d was given up after (25 s: 15 s after it was asked for)",
			25*time.Second, heardAt(d, start, KindDoesNotExist))
		pass(time.Minute)
		allSilent(b, a)
		// "such a resource may be created at any time"
		s.send(types.clusters, "1", "n2", cluster("a", "1"))
		a.cluster("1")
	})
}

// gRFC A57, "Handling Resources That Do Not Exist": the timer starts when the
// request is sent on a connection that is ready.
func TestTimerDoesNotRunWithoutConnection(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		pass(18 * time.Second) // the dial has 20 s
		a.silent()
		start := time.Now()
		server.stream()
		xdstest.Equal(t, "given up after the stream was open",
			15*time.Second, heardAt(a, start, KindDoesNotExist))
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
			if h := a.next(); h.err.Kind == KindDoesNotExist {
				break
			}
		}
		xdstest.Equal(t, "given up after the new stream was open",
			15*time.Second, time.Since(start))
	})
}

// While the client itself does not read, the server is not late.
func TestTimerDoesNotRunWhileWatchersAreBusy(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		start := time.Now()
		busy := newEar(t)
		busy.keepDone = true
		c.Watch(types.clusters, "busy", busy)
		a, b := listenBoth(t, c, types.endpoints, "a", "b")
		s := server.stream()
		pass(5 * time.Second)
		s.send(types.clusters, "1", "n1", cluster("busy", "1"))
		h := busy.next()
		s.send(types.endpoints, "1", "n2", endpoints("a"))
		pass(time.Hour)
		allSilent(a, b)
		h.done()
		a.value()
		xdstest.Equal(t, "b was given up after (15 s, without the hour in between)",
			15*time.Second+time.Hour, heardAt(b, start, KindDoesNotExist))
	})
}

// gRFC A88, "Changes to Resource Timer Behavior".
func TestTimerIsTransientError(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		start := time.Now()
		a, _ := listen(t, c, types.clusters, "a")
		server.stream()
		synctest.Wait()
		xdstest.Equal(t, "given up after", 30*time.Second, heardAt(a, start, KindTimeout))
	}, testutils.ServerFeatures("resource_timer_is_transient_error"))
}

// A resource that was there has no timer: not after a reconnect either.
func TestCachedResourceHasNoTimer(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		s := server.stream()
		s.send(types.clusters, "1", "n1", cluster("a", "1"))
		a.cluster("1")
		s.breakOff()
		server.stream()
		pass(time.Hour)
		a.silent()
	})
}

// A server that is back and has nothing to say is one that lacks the resource. What
// the watcher was told last stays true when the server does answer.
func TestTimerRunsOnAStreamWithoutAnswer(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		server.stream().breakOff()
		a.fault(KindUnreachable)
		s := server.stream()
		a.fault(KindDoesNotExist)
		s.send(types.endpoints, "1", "n1")
		a.silent()
	})
}
