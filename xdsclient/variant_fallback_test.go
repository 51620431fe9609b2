package xdsclient

import (
	"fmt"
	"testing"
)

// xRFC TP2 and gRFC A71: a server that is fallen back to and goes by names is asked for each name once. It
// does not answer twice, so that its answer for a name holds for whatever subscription to it comes later.
func TestFallbackToAServerWithoutVariants(t *testing.T) {
	higherHasVariants := []string{"dynamic_parameter_constraints", ""}
	runTranscripts(t, []transcriptTest{
		{name: "SotW", over: "SotW", servers: higherHasVariants, steps: `
			high: refuse
			watch prod=a{env=prod} test=a{env=test} -> low: stream; low: req a
			low: send 1 a=low        -> low: ack 1 a; prod = low; test = low
			watch other=a{env=other} -> other = low
			stop test
			low: send 2 a!no -> low: nack 2 a @1; prod ambient: invalid of low
			    -> other ambient: invalid of low
			watch late=a{env=test}   -> late = low; late ambient: invalid of low
		`, then: func(x *transcript) {
			for _, r := range x.c.Dump().Resources {
				if !r.Failure.Err.Constraints.Equal(r.Constraints) {
					x.t.Errorf("error %v has other constraints than %v", r.Failure.Err, r.Constraints)
				}
			}
			// The preferred server has variants again.
			x.run(`
			high: accept
			wait 1s                  -> high: stream; high: req a{env=other} a{env=prod} a{env=test}
			high: send 1 a{env=prod}=p a{env=test}=t -> high: ack 1 a{env=other} a{env=prod} a{env=test}
			    -> low: closed; prod = p; late = t
			`)
		}},
		// Over delta the name is unsubscribed from when there is no watch of it with any constraints.
		{name: "delta", over: "delta", servers: higherHasVariants, steps: `
			high: refuse
			watch prod=a{env=prod} b -> low: stream; low: req +a +b
			watch early=a{env=early} -> low: req +a
			low: send 1 a=low        -> low: ack 1; prod = low; early = low
			# A move.
			batch watch test=a{env=test}, stop prod -> test = low
			low: send 2 -a -> low: ack 2; test ambient: does not exist of low
			    -> early ambient: does not exist of low
			stop early
			stop test                -> low: req -a
		`},
	})
}

// TP2, "Matching Behavior and Best Practices" (TP2-dynamic-parameters-2021-08.md): "the cache must attempt to
// fetch a resource from the authoritative server with that constraint before falling back to using the one
// it already has cached". An attempt that finds the server unreachable is one.
func TestUnreachableServerFallsBackToACachedVariant(t *testing.T) {
	const (
		before = `
			watch three=a{shard=3} four=a{shard=4} b=b{shard=4} -> stream
			    -> req +a{shard=3} +a{shard=4} +b{shard=4}
			send 1 a{shard=3}=3 a{shard=4}=4 b{shard=4}=x         -> ack 1; three = 3; four = 4; b = x
			send 2 a{shard=3}=3 a{shard=4}=4 b{shard=4}?NotFound  -> ack 2; b ambient: does not exist
		`
		watch = `watch both=a{shard=0-5} other=a{shard=7} deleted=b{shard=0-5} -> `
		lose  = `
			refuse
			break
			wait 1s -> three ambient: unreachable; four ambient: unreachable; b ambient: unreachable`
		// The variant that deleted could have does not exist any more.
		standIn = "both = 4; both ambient: unreachable; other: unreachable; deleted: unreachable"
		// The server is asked for the preferred one when it is back.
		back = `
			accept
			wait 2s -> stream; req +a{shard=0-5} +a{shard=3} +a{shard=4} +a{shard=7} +b{shard=0-5} +b{shard=4}
			send 3 a{shard=3}=3 a{shard=4}=4 a{shard=5}=5 -> ack 3; ?both = 4; both = 5; three = 3; four = 4
			    -> b ambient: does not exist
		`
	)
	tests := []transcriptTest{
		{name: "before the watch", servers: variants, steps: before + lose + "\n" + watch + standIn + back, then: func(x *transcript) {
			for _, r := range x.c.Dump().Resources {
				if r.Failure != nil && !r.Failure.Err.Constraints.Equal(r.Constraints) {
					x.t.Errorf("error %v is for other constraints", r.Failure.Err)
				}
			}
		}},
		{name: "after the watch", servers: variants, steps: before + watch + "req +a{shard=0-5} +a{shard=7} +b{shard=0-5}" + lose + "; " + standIn + back},
	}
	// A server that had an answer for the subscription itself is believed, now that it cannot be reached.
	for code, kind := range map[string]string{"NotFound": "does not exist", "PermissionDenied": "server error", "Internal": "server error"} {
		tests = append(tests, transcriptTest{name: "after the answer " + code, servers: variants, steps: fmt.Sprintf(`
			watch three=a{shard=3} denied=a{shard=0-5} -> stream; req +a{shard=0-5} +a{shard=3}
			send 1 a{shard=3}=3 a{shard=0-5}?%s -> ack 1; three = 3; denied: %s
			refuse
			break
			wait 1s                 -> three ambient: unreachable; denied: unreachable
			watch late=a{shard=0-5} -> late: unreachable
		`, code, kind)})
	}
	runTranscripts(t, tests)
}
