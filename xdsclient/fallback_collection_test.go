package xdsclient

import "testing"

// Names in the authority of the collection, so that the servers are those of the same authority.
const endpointsInAuth = "e:xdstp://auth/envoy.config.endpoint.v3.ClusterLoadAssignment/e"

// gRFC A71 and xRFC TP1, "Glob": the members of a collection are those that the server in use has.
// Those of the one before stay until it has answered.
func TestFallbackOfCollections(t *testing.T) {
	// The client has members from the higher server, which is unreachable. Something else is missing, so
	// that it falls back.
	const before = `
		watch c=dir/*                    -> high: stream; high: req +dir/*
		high: send 1 dir/a=x dir/b=x     -> high: ack 1; c member a = x; c member b = x; c collection
		high: refuse
		high: break
		wait 1s
		low: streams 0
		watch e=` + endpointsInAuth + ` -> low: stream; low: e.req `
	const missing = "xdstp://auth/envoy.config.endpoint.v3.ClusterLoadAssignment/e"
	const fallenBack = before + "+" + missing + `; low: req +dir/*
		high: accept
	`
	runTranscripts(t, []transcriptTest{
		{name: "members of the lower server", over: "delta", servers: ofTwo, steps: fallenBack + `
			low: send 1 dir/a@7=x dir/c=low  -> low: ack 1; c member b: does not exist; c member c = low
			low: send 2 dir/d=low            -> low: ack 2; c member d = low
			# What is of no use is held until something is.
			wait 2s                          -> high: stream; high: req +dir/*; high: e.req +` + missing + `
			high: send 1 dir/bad!no          -> high: nack 1
			watch late=dir/* -> late member a = x; late member c = low; late member d = low; late collection
			low: send 3 dir/a=y              -> low: ack 3; c member a = y; late member a = y
			stop late
			high: send 2 dir/c=low -> high: ack 2; low: closed; c member a: does not exist
			    -> c member d: does not exist; c member bad: invalid
		`},
		// The higher server takes over with its answer for the collection. The members that it has as well do
		// not leave in between.
		{name: "higher server takes over", over: "delta", servers: ofTwo, steps: fallenBack + `
			low: send 1 dir/a=x dir/b=low dir/c=low -> low: ack 1; c member b = low; c member c = low
			wait 2s                          -> high: stream; high: req +dir/*; high: e.req +` + missing + `
			high: send 1 dir/new=high dir/b=high dir/c=low -> high: ack 1; low: closed; c member new = high
			    -> c member b = high; c member a: does not exist
			watch late=dir/* -> late member b = high; late member c = low; late member new = high
			    -> late collection
			stop late
			high: break
			# The other type had no answer on the stream, so the backoff goes on.
			wait 4s                          -> high: stream; high: req +dir/* has dir/b@1 dir/c@1 dir/new@1; high: e.req +` + missing + `
			high: send 1 -dir/b              -> high: ack 1; c member b: does not exist
		`, then: func(x *transcript) {
			if d := x.c.Dump(); len(d.Resources) != 4 { // the collection, its members, and what is missing
				x.t.Errorf("the dump has %+v, want 4 entries", d.Resources)
			}
		}},
		// That a collection is empty is an answer as well.
		{name: "higher server takes over with an empty collection", over: "delta", servers: ofTwo, steps: fallenBack + `
			low: send 1 dir/a=x dir/b=x      -> low: ack 1
			wait 2s                          -> high: stream; high: req +dir/*; high: e.req +` + missing + `
			high: send 1 -dir/* -> high: ack 1; low: closed; c member a: does not exist
			    -> c member b: does not exist
		`},
		// A lower server that has no collections leaves the members in use.
		{name: "lower server without collections", over: "delta, SotW", servers: ofTwo, steps: before + missing + `; c ambient: configuration
			high: accept
			wait 2s                          -> high: stream; high: req +dir/*; high: e.req +` + missing + `
			high: send 1 dir/a=x dir/c=x -> high: ack 1; low: closed; c member b: does not exist
			    -> c member c = x; c collection
		`},
	})
}
