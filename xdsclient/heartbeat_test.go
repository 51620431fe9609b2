package xdsclient

import (
	"testing"

	"google.golang.org/protobuf/proto"
)

// Envoy, xDS protocol, "TTL": a resource without a body and with a name and a version only says that
// the server still has it.
func TestHeartbeats(t *testing.T) {
	runTranscripts(t, []transcriptTest{
		{name: "over delta", over: "delta", steps: `
			watch a b               -> stream; req +a +b
			# Nothing is known of b, and its timer goes on.
			send 1 a@1=x b@1~       -> ack 1; a = x
			send 2 a@1~ unasked@1~  -> ack 2
			# A heartbeat of another version, as after a NACK, says nothing of the one in use; one of
			# the version in use ends the error.
			send 3 a@2!no           -> nack 3; a ambient: invalid
			send 4 a@2~             -> ack 4
			send 5 a@1~             -> ack 5; a = x
			wait 15s                -> b: timeout
			# Without a version it is no heartbeat.
			send 6 a@~              -> nack 6; a ambient: invalid
		`},
		// A heartbeat is a resource that is there.
		{name: "over SotW", over: "SotW", steps: `
			watch a b               -> stream; req a b
			send 1 a@7=x b@7=x      -> ack 1 a b; a = x; b = x
			send 2 a@7~             -> ack 2 a b; b ambient: does not exist
		`},
	})
}

func heartbeat(name, version string) proto.Message {
	return deltaResponse(&ResourceType{}, "", has(name, version, nil)).GetResources()[0]
}
