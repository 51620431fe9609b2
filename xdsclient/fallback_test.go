package xdsclient

import (
	"strings"
	"testing"

	"github.com/dynxds/dynxds/testutils"
)

// A server that is listed twice is one server.
func TestServerListedTwice(t *testing.T) {
	(&transcriptTest{
		over: "SotW", authorities: []testutils.BootstrapOption{testutils.FurtherServer(uri(0))},
		steps: "refuse\nwatch a -> a: unreachable", then: func(x *transcript) {
			if text := x.ask("text a"); strings.Count(text[0], uri(0)) != 1 {
				t.Errorf("got %s, want the server once", text)
			}
			x.run("stop a")
			x.c.mu.Lock()
			defer x.c.mu.Unlock()
			if n := len(x.c.channels) + len(x.c.authorities); n > 0 {
				t.Errorf("%d channels and authorities are left", n)
			}
		},
	}).run(t)
}
