package xdsclient

import "testing"

// A resource does not exist if the server says so. A server that has not answered for it is late.
func TestSilenceIsNotAbsence(t *testing.T) {
	runTranscripts(t, []transcriptTest{
		{name: "nothing at all", steps: `
			watch a e:b  -> stream; req +a; e.req +b
			wait 15s     -> a: timeout; e:b: timeout
		`},
		{name: "other types only", steps: `
			watch a e:b  -> stream; req +a; e.req +b
			send e:1 b   -> e.ack 1; e:b =
			wait 15s     -> a: timeout
		`},
		{name: "late", steps: `
			watch a      -> stream; req +a
			wait 15s     -> a: timeout
			wait 2s
			send 1 a=x   -> ack 1; a = x
		`},
		{name: "on the next stream", steps: `
			watch a b    -> stream; req +a +b
			send 1 a=x   -> ack 1; a = x
			break
			wait 1s      -> stream; req +a +b
			wait 15s     -> b: timeout
		`},
		{name: "after the full state, and asked for later", over: "SotW", steps: `
			watch a      -> stream; req a
			send 1 a=x   -> ack 1 a; a = x
			watch b      -> ack 1 a b
			wait 15s     -> b: timeout
		`},
		// The only response is the answer to the first request.
		{name: "after the full state that crossed the request", over: "SotW", steps: `
			watch a      -> stream; req a
			watch b      -> req a b
			send 1 a=x   -> ack 1 a b; a = x
			wait 15s     -> b: timeout
		`},
		{name: "resource_timer_is_transient_error", over: "SotW", servers: []string{"resource_timer_is_transient_error"}, steps: `
			watch a b    -> stream; req a b
			send 1 a=x   -> ack 1 a b; a = x
			wait 30s     -> b: timeout
		`},
	})
}

func TestAbsenceIsSaid(t *testing.T) {
	runTranscripts(t, []transcriptTest{
		{name: "by the full state", over: "SotW", steps: `
			watch a b    -> stream; req a b
			send 1 a=x   -> ack 1 a b; a = x
			wait 14999ms
			wait 1ms     -> b: does not exist
		`},
		{name: "by an empty full state", over: "SotW", steps: `
			watch a      -> stream; req a
			send 1       -> ack 1 a
			wait 15s     -> a: does not exist
		`},
		{name: "by the second full state, after two requests", over: "SotW", steps: `
			watch a      -> stream; req a
			watch b      -> req a b
			send 1 a=x   -> ack 1 a b; a = x
			send 1 a=x   -> ack 1 a b
			wait 15s     -> b: does not exist
		`},
		{name: "by the answer to the second request", over: "SotW", steps: `
			watch a      -> stream; req a
			send 1 a=x   -> ack 1 a; a = x
			watch b      -> ack 1 a b
			send 1 a=x   -> ack 1 a b
			wait 15s     -> b: does not exist
		`},
		// The timer said nothing. What the server says later counts at once.
		{name: "after the timer", steps: `
			watch a b        -> stream; req +a +b
			wait 15s         -> a: timeout; b: timeout
			sotw send 1 a=x  -> ack 1; a = x; b: does not exist
			delta send 1 -b a=x -> ack 1; a = x; b: does not exist
		`},
		{name: "after the timer, though a request crossed", over: "SotW", steps: `
			watch a          -> stream; req a
			watch b          -> req a b
			wait 15s         -> a: timeout; b: timeout
			send 1 a=x       -> ack 1 a b; a = x; b: does not exist
		`},
		// gRFC A57: a type whose responses have single resources has no other way to say so.
		{name: "by other resources", over: "SotW", steps: `
			watch e:a e:b    -> stream; e.req a b
			send e:1 a       -> e.ack 1 a b; e:a =
			wait 15s         -> e:b: does not exist
		`},
		{name: "by an error, whatever the timer said", steps: `
			watch a              -> stream; req +a
			wait 15s             -> a: timeout
			send 1 a?NotFound/no -> ack 1; a: does not exist
		`},
	})
}
