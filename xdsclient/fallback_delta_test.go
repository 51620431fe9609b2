package xdsclient

import (
	"fmt"
	"testing"
)

// gRFC A71: the way down and the way up are the same whatever each of the servers speaks. Bytes that the
// client has from the other server are not decoded again.
func TestFallbackBetweenProtocols(t *testing.T) {
	runTranscripts(t, []transcriptTest{{name: "down and up", servers: ofTwo, steps: `
		watch a                  -> high: stream; high: req +a
		high: send 1 a=x         -> high: ack 1; a = x
		high: refuse
		high: break
		wait 1s
		low: streams 0
		watch b                  -> low: stream; low: req +a +b
		low: send 7 a=x b=low    -> low: ack 7; b = low
		low: send 8 a=low b=low  -> low: ack 8; a = low
		high: accept
		wait 2s                  -> high: stream; high: req +a +b
		high: send 1 a=x b=low   -> high: ack 1; low: closed; a = x
		low: streams 1
	`, then: func(x *transcript) {
		checkServers(x.t, x.c, map[string]string{"a": uri(0), "b": uri(0)})
		x.types.wantDecoded(x.t, 4) // a whenever it differs from that in use, and the lower one's b
	}}})
}

// gRFC A71 and xRFC TP3: that a resource does not exist, or not for this client, is as good as cached. Any
// other error is not, unless there is a version in use.
func TestServerErrorsAndWhatIsCached(t *testing.T) {
	const fallsBack = "low: stream; low: req +a"
	var tests []transcriptTest
	for code, error := range map[string]struct{ kind, follows string }{
		"NotFound":         {"does not exist", ""},
		"PermissionDenied": {"server error", ""},
		"Unavailable":      {"server error", fallsBack},
		"Internal":         {"server error", fallsBack},
	} {
		tests = append(tests, transcriptTest{name: code, servers: ofTwo, steps: fmt.Sprintf(`
			watch a              -> high: stream; high: req +a
			high: send 1 a?%s    -> high: ack 1; a: %s of high
			high: refuse
			high: break
			wait 1s              -> %s
		`, code, error.kind, error.follows)}, transcriptTest{name: code + " of a version in use", servers: ofTwo, steps: fmt.Sprintf(`
			watch a              -> high: stream; high: req +a
			high: send 1 a=x     -> high: ack 1; a = x
			high: send 2 a?%s    -> high: ack 2; a ambient: %s of high
			high: refuse
			high: break
			wait 1m
		`, code, error.kind)})
	}
	runTranscripts(t, tests)
}

func TestAnswersOfServersOverDelta(t *testing.T) {
	runTranscripts(t, []transcriptTest{
		// A server that was unreachable, while all was cached, is given the versions that are in use, except
		// one: its answer to that ends the unreachability.
		{name: "answer after an outage", over: "delta", servers: ofTwo, steps: `
			watch a b                      -> high: stream; high: req +a +b
			high: send 1 a=x b=x           -> high: ack 1; a = x; b = x
			high: refuse
			high: break
			wait 10s
			high: accept
			wait 8s                        -> high: stream; high: req +a +b has a@ b@1
			high: send 1 a=x               -> high: ack 1
			low: streams 0
		`, then: func(x *transcript) {
			if servers := x.c.Dump().Servers; len(servers) != 1 || !servers[0].Connected {
				x.t.Errorf("the servers are %+v, want the higher one, connected", servers)
			}
		}},
	})
}

// The last answer of a server for a resource holds for a watch that starts before the server was told
// that the last one stopped, the error beside the version included.
func TestLastAnswerOutlivesTheWatch(t *testing.T) {
	runTranscripts(t, []transcriptTest{{name: "both", steps: `
		watch a b!             -> stream; req +a +b
		send 1 a=x             -> ack 1; a = x
		send 2 b=x a?Internal  -> ack 2; b = x; a ambient: server error
		stop a
		watch late=a           -> late = x; late ambient: server error
	`}})
}
