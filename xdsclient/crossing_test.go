package xdsclient

import (
	"fmt"
	"testing"

	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// Envoy, xDS protocol, "ACK and NACK": a server ignores requests with a stale nonce. If a response
// crosses requests that leave a name out and ask for it again, the server has to notice both, or it would
// not send the resource.
func TestResponseThatCrossesARequest(t *testing.T) {
	const received = `
		watch e:a e:b   -> stream; e.req a b
		send e:1 a b    -> e.ack 1 a b; e:a =; e:b =
	`
	const leftOut = received + `
		stop e:b        -> e.ack 1 a
	`
	// A server that has no b goes on with other resources. It is not asked for ever, and the resource timer,
	// which began with the first request, goes on.
	repeated, step := `
		watch e:b       -> e.ack 1 a b
	`, defaultResourceTimeout/(2*ads.MaxRepeats)
	for n := 2; n < 2+ads.MaxRepeats; n++ {
		repeated += fmt.Sprintf(`
		wait %[1]v
		send e:%[2]d a  -> e.ack %[2]d a b; e.ack %[2]d a; e.ack %[2]d a b
		`, step, n)
	}
	runTranscripts(t, []transcriptTest{
		{name: "of a server that does not have it", over: "SotW", steps: leftOut + repeated + `
			send e:9 a  -> e.ack 9 a b
			wait 7500ms -> e:b: does not exist
		`},
	})
}
