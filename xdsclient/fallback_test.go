package xdsclient

import (
	"testing"

	"github.com/dynxds/dynxds/testutils"
)

// ofTwo are servers without features.
var ofTwo = []string{"", ""}

// fallenBackSteps make a client fall back: it has a and b from the lower server, as "low".
const fallenBackSteps = `
	high: refuse
	watch a b               -> low: stream; low: req a b
	low: send 1 a=low b=low -> low: ack 1 a b; a = low; b = low
`

func TestFallback(t *testing.T) {
	var tests []transcriptTest
	// A higher server that reports that a resource is not there, or not for this client, is believed.
	for code, follows := range map[string]string{
		"NotFound":         "; low: closed; a ambient: does not exist of high",
		"PermissionDenied": "; low: closed; a ambient: server error of high",
		"Unavailable":      "",
	} {
		tests = append(tests, transcriptTest{name: "answer of a higher server: " + code, over: "SotW", servers: ofTwo, steps: fallenBackSteps + `
			high: accept
			wait 1s               -> high: stream; high: req a b
			high: send 1 a?` + code + ` -> high: ack 1 a b` + follows})
	}
	runTranscripts(t, tests)
}

// A server that is listed twice is one server.
func TestServerListedTwice(t *testing.T) {
	overFleet(t, 1, func(t *testing.T, types *testTypes, f fleet) {
		f[0].setRefuse(errRefused)
		c := f.client(testutils.FurtherServer(uri(0)))
		a, stop := listen(t, c, types.clusters, "a")
		if err := a.fault(KindUnreachable); err.Server != uri(0) {
			t.Errorf("the error names %s, want the server once", err.Server)
		}
		stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := len(c.channels) + len(c.authorities); n > 0 {
			t.Errorf("%d channels and authorities are left", n)
		}
	})
}
