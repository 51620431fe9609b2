package xdsclient

import (
	"testing"

	"github.com/dynxds/dynxds/xdsclient/internal/choice"
)

// Each of two subscriptions has what it prefers and matches what the other one has. A
// server that answers each question by itself makes them ask in turns, but not for
// ever, and neither loses what it has.
func TestTwoThatAskInTurnsComeToAnEnd(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		d.types.clusters.FullStateInSotW = false
		byX, _ := d.watch("a", "x=0-9")
		byY, _ := d.watch("a", "y=0-9")
		x := "2"
		largeX := func(text string) func(*answer) { return variantOf("a", "y=1,x="+x, text) }
		largeY := func(text string) func(*answer) { return variantOf("a", "x=1,y=2", text) }
		// turns answers each question, and returns how many there were.
		turns := func() (n int) {
			for {
				asked := d.listens()
				if len(asked) == 0 {
					return n
				}
				if n++; n > 4*choice.MaxConfirmed {
					t.Fatalf("the client goes on asking: %q", asked)
				}
				for _, locator := range asked {
					switch locator {
					case "+a{x in [0-9]}":
						d.says(largeX("x"))
					case "+a{y in [0-9]}":
						d.says(largeY("y"))
					}
				}
			}
		}
		d.listens()
		d.says(largeX("x"), largeY("y"))
		byX.cluster("x")
		byY.cluster("y")
		d.hears()
		check := func(when string, least, most int) {
			t.Helper()
			if n := turns(); n < least || n > most {
				t.Errorf("%s: the server was asked %d times, want %d to %d", when, n, least, most)
			}
			byX.silent()
		}
		d.says(largeY("first"))
		byY.cluster("first")
		d.says(largeY("y"))
		byY.cluster("y")
		check("a question", 2, 2*choice.MaxConfirmed+1)
		byY.silent()

		// From then on news alone is reason enough.
		d.says(largeY("second"))
		byY.cluster("second")
		d.says(largeY("y"))
		byY.cluster("y")
		check("news after that", 1, 1)
		byY.silent()

		// Another stream may be one to a server that answers otherwise.
		d.breaks()
		d.listens()
		d.says(largeX("x"), largeY("y"))
		d.says(largeY("third"))
		byY.cluster("third")
		d.says(largeY("y"))
		byY.cluster("y")
		check("on another stream", 2, 2*choice.MaxConfirmed+1)
		byY.silent()

		// What is not as it was counts, whatever was asked before.
		x = "3"
		d.says(largeX("larger"))
		byX.cluster("larger")
		d.says(largeX("x"))
		byX.cluster("x")
		check("a better one", 1, 2*choice.MaxConfirmed+1)
	})
}
