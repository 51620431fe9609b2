package xdsclient

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/xdsclient/internal/choice"
)

// xRFC TP3, "Protocol Behavior": an error is for the subscription that it names. With
// it the server has answered this one: a variant of the same response that matches its
// constraints too (xRFC TP2) is for others.
func TestErrorComesBeforeAVariantThatMatches(t *testing.T) {
	for _, test := range []struct {
		name string
		code codes.Code
		kind ErrorKind
		// had is the variant that the subscription has before, if any.
		had string
	}{
		{"of a new subscription", codes.PermissionDenied, KindServer, ""},
		{"that there is nothing for a new subscription", codes.NotFound, KindDoesNotExist, ""},
		{"in place of the preferred variant", codes.PermissionDenied, KindServer, "shard=5"},
		{"in place of the very variant", codes.PermissionDenied, KindServer, "shard=3"},
		{"that there is nothing any more", codes.NotFound, KindDoesNotExist, "shard=5"},
	} {
		t.Run(test.name, func(t *testing.T) {
			overDesks(t, []string{"fail_on_data_errors"}, func(t *testing.T, d *desk) {
				denied, _ := d.watch("a", "shard=0-5")
				other, exact := d.watchBoth("shard=0-4", "shard=3")
				if test.had != "" {
					d.says(variantOf("a", test.had, "first"))
					denied.cluster("first")
					if test.had == "shard=3" {
						allHear("first", other, exact)
					}
				}
				d.says(refuses(test.code, "a", "shard=0-5"), variantOf("a", "shard=3", "3"), variantOf("a", "shard=1", "1"))
				denied.fault(test.kind)
				allHear("3", other, exact)
				denied.silent()

				// The error holds for its response only.
				d.says(variantOf("a", "shard=3", "3"), variantOf("a", "shard=4", "4"))
				allHear("4", denied, other)
				exact.silent()
			})
		})
	}
}

// An error that names no constraints says nothing of who a variant is for.
func TestErrorForANameLeavesItsVariants(t *testing.T) {
	overDesks(t, []string{"fail_on_data_errors"}, func(t *testing.T, d *desk) {
		prod, test := d.watchBoth("env=prod", "env=test")
		d.says(refuses(codes.Internal, "a"), variantOf("a", "env=prod", "p"))
		prod.cluster("p")
		test.fault(KindServer)
	})
}

// xRFC TP2, "Matching Behavior and Best Practices": "the largest possible matching
// value is preferred". A server sends what changed, and says what the subscription has
// when it is asked again: however often that is, none of the lesser variants takes the
// place of the preferred one.
func TestServerThatSendsOnlyTheVariantThatChanged(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		d.types.clusters.FullStateInSotW = false
		wide, _ := d.watch("a", "shard=0-5")
		three, one := d.watchBoth("shard=3", "shard=1")
		d.says(variantOf("a", "shard=5", "5"), variantOf("a", "shard=3", "3"), variantOf("a", "shard=1", "1"))
		wide.cluster("5")
		three.cluster("3")
		one.cluster("1")
		for round := range 3 * choice.MaxRefuted {
			text := fmt.Sprint("round ", round)
			if round%2 == 0 {
				d.says(variantOf("a", "shard=3", text))
				three.cluster(text)
			} else {
				d.says(variantOf("a", "shard=1", text))
				one.cluster(text)
			}
			if len(d.listens()) == 0 {
				t.Fatalf("%s: the server was not asked whether the preferred variant is still there", text)
			}
			d.says(variantOf("a", "shard=5", "5"))
			d.hears()
		}
		wide.silent()

		// Nor is a change of the preferred one lost on the way.
		d.says(variantOf("a", "shard=3", "last"))
		three.cluster("last")
		d.listens()
		d.says(variantOf("a", "shard=5", "new"))
		wide.cluster("new")
		d.hears()
	})
}

// The answer to a question about one subscription may be the only word that the
// preferred variant of another one is gone as well.
func TestAnswerForOneMakesAnotherOneAsk(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		d.types.clusters.FullStateInSotW = false
		one, _ := d.watch("a", "shard=0-5")
		two, low := d.watchBoth("shard=2-5", "shard=1")
		d.says(variantOf("a", "shard=5", "5"), variantOf("a", "shard=1", "1"))
		allHear("5", one, two)
		low.cluster("1")
		d.hears()

		// One of the two is in doubt, and by its answer the other one.
		d.says(variantOf("a", "shard=1", "1'"))
		low.cluster("1'")
		d.hears(d.again("a{shard in [0-5]}")...)
		d.says(variantOf("a", "shard=4", "4"))
		one.cluster("4")
		two.silent()
		d.hears(d.again("a{shard in [2-5]}")...)
		d.says(variantOf("a", "shard=4", "4"))
		two.cluster("4")
		one.silent()
		d.hears()
	})
}

// again is what is heard when a subscription is asked for again: an incremental
// server takes it for a new one, another one has to be told that it ended.
func (d *desk) again(locator string) []string {
	if d.delta {
		return []string{"+" + locator}
	}
	return []string{"-" + locator, "+" + locator}
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
				if n++; n > 4*choice.MaxRefuted {
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
		check("a doubt", 2, 2*choice.MaxRefuted+1)
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
		check("on another stream", 2, 2*choice.MaxRefuted+1)
		byY.silent()

		// What is not as it was counts, whatever was asked before.
		x = "3"
		d.says(largeX("larger"))
		byX.cluster("larger")
		d.says(largeX("x"))
		byX.cluster("x")
		check("a better one", 1, 2*choice.MaxRefuted+1)
	})
}
