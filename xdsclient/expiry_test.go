package xdsclient

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestResourceTimer(t *testing.T) {
	runTranscripts(t, []transcriptTest{
		// Envoy, xDS protocol, "Knowing When a Requested Resource Does Not Exist": 15 s after it was asked
		// for.
		{name: "resource that does not come", over: "SotW", steps: `
			watch a e:b  -> stream; req a; e.req b
			wait 10s
			watch e:d    -> e.req b d
			send e:1 b   -> e.ack 1 b d; e:b =
			wait 4999ms
			wait 1ms     -> a: timeout
			wait 9999ms
			wait 1ms     -> e:d: does not exist
			wait 1m
			# "such a resource may be created at any time"
			send 1 a=x   -> ack 1 a; a = x
		`},
		// While the client itself does not read, the server is not late.
		{name: "busy watcher", over: "SotW", steps: `
			watch busy! e:a e:b -> stream; req busy; e.req a b
			wait 5s
			send 1 busy=x       -> ack 1 busy; busy = x
			send e:1 a
			wait 1h
			done busy           -> e.ack 1 a b; e:a =
			wait 9999ms
			wait 1ms            -> e:b: does not exist
		`},
		// gRFC A88, "Changes to Resource Timer Behavior".
		{name: "resource_timer_is_transient_error", over: "SotW", servers: []string{"resource_timer_is_transient_error"}, steps: `
			watch a      -> stream; req a
			wait 29999ms
			wait 1ms     -> a: timeout
		`},
		// A resource that was there has no timer: not after a reconnect either.
		{name: "cached resource", over: "SotW", steps: `
			watch a      -> stream; req a
			send 1 a=x   -> ack 1 a; a = x
			break
			wait 1h      -> stream; req a @1
		`},
		// A server that is back and sends nothing is late. What the watcher got last stays true when the server does answer.
		{name: "stream without an answer", over: "SotW", steps: `
			watch a      -> stream; req a
			break        -> a: unreachable
			wait 1s      -> stream; req a
			wait 15s     -> a: timeout
			send e:1
		`},
	})
}

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
