package xdsclient

import (
	"fmt"
	"testing"

	"github.com/dynxds/dynxds/xdsclient/internal/choice"
)

// xRFC TP3, "Protocol Behavior": an error is for the subscription that it names. With it the server has
// answered this one: a variant of the same response that matches its constraints too (xRFC TP2) is for
// others.
func TestErrorComesBeforeAVariantThatMatches(t *testing.T) {
	tests := []transcriptTest{
		// An error that names no constraints says nothing of who a variant is for.
		{name: "for a name", servers: strictVariants, steps: `
			watch a{env=prod} a{env=test}     -> stream; req +a{env=prod} +a{env=test}
			send 1 a?Internal a{env=prod}=p   -> ack 1; a{env=prod} = p; a{env=test}: server error
		`},
	}
	const others = "; other = first; exact = first"
	for _, test := range []struct{ name, code, kind, had, follows string }{
		{"of a new subscription", "PermissionDenied", "server error", "", ""},
		{"that there is nothing for a new subscription", "NotFound", "does not exist", "", ""},
		{"in place of the preferred variant", "PermissionDenied", "server error", "shard=5", ""},
		{"in place of the very variant", "PermissionDenied", "server error", "shard=3", others},
		{"that there is nothing any more", "NotFound", "does not exist", "shard=5", ""},
	} {
		steps := `
			watch denied=a{shard=0-5} other=a{shard=0-4} exact=a{shard=3} -> stream; req +a{shard=0-4} +a{shard=0-5} +a{shard=3}`
		if test.had != "" {
			steps += `
			send 1 a{` + test.had + `}=first -> ack 1; denied = first` + test.follows
		}
		tests = append(tests, transcriptTest{name: test.name, servers: strictVariants, steps: steps + fmt.Sprintf(`
			send 2 a{shard=0-5}?%s a{shard=3}=3 a{shard=1}=1 -> ack 2; denied: %s; other = 3; exact = 3
			# The error holds for its response only.
			send 3 a{shard=3}=3 a{shard=4}=4 -> ack 3; denied = 4; other = 4
		`, test.code, test.kind)})
	}
	runTranscripts(t, tests)
}

func TestQuestionOfTheVariantInUse(t *testing.T) {
	// A server sends what changed, and sends what the subscription has when it is asked again: however often
	// that is, none of the lesser variants takes the place of the preferred one.
	changes := `
		watch wide=a{shard=0-5} three=a{shard=3} one=a{shard=1} -> stream
		    -> req +a{shard=0-5} +a{shard=1} +a{shard=3}
		send 1 a{shard=5}=5 a{shard=3}=3 a{shard=1}=1 -> ack 1; wide = 5; three = 3; one = 1
	`
	for round := range 3 * choice.MaxConfirmed {
		shard, watch := 3, "three"
		if round%2 == 1 {
			shard, watch = 1, "one"
		}
		changes += fmt.Sprintf(`
		send r%[1]d a{shard=%[2]d}=r%[1]d -> ack r%[1]d; again a{shard=0-5}; %[3]s = r%[1]d
		send s%[1]d a{shard=5}=5 -> ack s%[1]d
		`, round, shard, watch)
	}
	runTranscripts(t, []transcriptTest{
		// xRFC TP2, "Matching Behavior and Best Practices": "the largest possible matching value is preferred".
		{name: "server that sends the variant that changed", servers: variants, changes: true, steps: changes + `
			# Nor is a change of the preferred one lost on the way.
			send last a{shard=3}=last -> ack last; again a{shard=0-5}; three = last
			send new a{shard=5}=new   -> ack new; wide = new
		`},
		{name: "variant for a watch that has stopped", over: "delta", servers: variants, steps: `
			watch wide=a{shard=0-5} three=a{shard=3}  -> stream; req +a{shard=0-5} +a{shard=3}
			send 1 a{shard=5}=5 a{shard=3}=3          -> ack 1; wide = 5; three = 3
			stop three                                -> req -a{shard=3}
			# The server has not read that.
			send 2 a{shard=3}=4                       -> ack 2; req +a{shard=0-5}
			send 3 a{shard=5}=5                       -> ack 3
		`},
		// The answer to a question about one subscription may be the only sign that the preferred variant of
		// another one was removed as well.
		{name: "answer for one that makes another one ask", servers: variants, changes: true, steps: `
			watch one=a{shard=0-5} two=a{shard=2-5} low=a{shard=1} -> stream
			    -> req +a{shard=0-5} +a{shard=1} +a{shard=2-5}
			send 1 a{shard=5}=5 a{shard=1}=1 -> ack 1; one = 5; two = 5; low = 1
			# The server is asked about one of the two, and by its answer about the other one.
			send 2 a{shard=1}=2 -> ack 2; again a{shard=0-5}; low = 2
			send 3 a{shard=4}=4 -> ack 3; again a{shard=2-5}; one = 4
			send 4 a{shard=4}=4 -> ack 4; two = 4
		`},
	})
}

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
