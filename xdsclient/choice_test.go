package xdsclient

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// TP2, "Dynamic Parameters": "the client will use the dynamic parameters on the
// resource to determine which of its subscriptions the resource is associated with".
// Watchers with different constraints on one name see different resources on one
// stream.
func TestVariantsSideBySide(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		prod, _ := d.watch("a", "env=prod")
		test, _ := d.watch("a", "env=test")
		d.hears("+a{env=prod}", "+a{env=test}")
		d.says(variantOf("a", "env=test", "t1"), variantOf("a", "env=prod", "p1"))
		prod.cluster("p1")
		test.cluster("t1")
		d.says(variantOf("a", "env=test", "t1"), variantOf("a", "env=prod", "p2"))
		prod.cluster("p2")
		test.silent()
		d.types.wantDecoded(t, 3)
	})
}

// A resource goes to all subscriptions that it matches, and is decoded once. TP2,
// "Matching Ambiguity": constraints on a key "match any resource variant that does
// not specify that key at all".
func TestResourceGoesToAllThatItMatches(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		var ears []*ear
		for _, constraints := range [][]string{{"env=prod"}, {"env=prod", "v=1"}, {"v!=2"}, {}} {
			e, _ := d.watch("a", constraints...)
			ears = append(ears, e)
		}
		other, _ := d.watch("a", "env=test")
		d.listens()
		d.says(variantOf("a", "env=prod", "x"))
		for _, e := range ears {
			if e.cluster("x") == nil {
				t.Fatal("no cluster")
			}
		}
		other.silent()
		prod, _ := d.watch("b", "env=prod")
		test, _ := d.watch("b", "env=test")
		d.listens()
		d.says(variantOf("a", "env=prod", "x"), variantOf("b", "", "everybody's"))
		allHear("everybody's", prod, test)
		d.types.wantDecoded(t, 2)
	})
}

// A server that does not wrap what has no parameters sends it bare. It matches all.
func TestBareResourceMatchesAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDesk(t, false)
		prod, test := d.watchBoth("env=prod", "env=test")
		bare := func(text string) {
			d.k.push(mustMarshal(t, &discoverypb.DiscoveryResponse{
				TypeUrl: d.types.clusters.TypeURL, Nonce: text, Resources: []*anypb.Any{pack(t, cluster("a", text))},
			}))
		}
		bare("x")
		allHear("x", prod, test)
		bare("x")
		allSilent(prod, test)
		d.types.wantDecoded(t, 1)
		bare("y")
		allHear("y", prod, test)
		// Beside a variant that matches it comes last.
		m := inSotW(t, &answer{TypeUrl: d.types.clusters.TypeURL, Nonce: "n"})
		m.Resources = append(m.Resources, pack(t, cluster("a", "z")))
		r := &answer{}
		variantOf("a", "env=prod", "variant")(r)
		m.Resources = append(m.Resources, inSotW(t, r).Resources...)
		d.k.push(mustMarshal(t, m))
		prod.cluster("variant")
		test.cluster("z")
	})
}

// TP2, "Matching Behavior and Best Practices": "the largest possible matching value
// is preferred", whatever the order in which a response has the variants. None of the
// others is told, or decoded.
func TestLargestMatchingValueWins(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		e, _ := d.watch("a", "shard=0-5")
		d.listens()
		for i, order := range [][]int{{3, 5, 6}, {5, 6, 3}, {6, 5, 3, 4}} {
			var parts []func(*answer)
			for _, shard := range order {
				parts = append(parts, variantOf("a", fmt.Sprint("shard=", shard), fmt.Sprint(i, "/", shard)))
			}
			d.says(parts...)
			e.cluster(fmt.Sprint(i, "/5"))
			e.silent()
		}
		if got := d.k.c.Stats(); got.Decoded != 3 || got.Unmatched != 3 || got.Unasked != 3 || got.Ambiguous != 0 {
			t.Errorf("Stats() is %+v, want 3 decoded, 3 unmatched and none ambiguous", got)
		}
	})
}

// A choice that TP2 leaves open is made alike whatever the order, reported, and
// counted.
func TestAmbiguousChoice(t *testing.T) {
	for _, test := range []struct {
		name, constraint string
		variants         [2]string // the one that is chosen comes first
	}{
		{"a key that the client does not ask for", "env=prod", [2]string{"env=prod,v=1", "env=prod,v=2"}},
		{"a key that one variant does not have", "v=1", [2]string{"v=1", "env=x"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			overDesks(t, nil, func(t *testing.T, d *desk) {
				e, _ := d.watch("a", test.constraint)
				d.listens()
				d.says(variantOf("a", test.variants[0], "1"), variantOf("a", test.variants[1], "2"))
				e.cluster("1")
				d.says(variantOf("a", test.variants[1], "2"), variantOf("a", test.variants[0], "1"))
				e.silent()
				if got := d.k.c.Stats(); got.Ambiguous != 2 {
					t.Errorf("Stats() counts %d ambiguous choices, want 2", got.Ambiguous)
				}
			})
		})
	}
}

// A variant that matches no subscription is dropped and counted, and is no fault.
func TestVariantThatMatchesNoSubscription(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		e, _ := d.watch("a", "env=prod")
		d.listens()
		v := d.says(variantOf("a", "env=test", "x"), variantWith("a", "env=test", "1", badCluster("a", "x")), variantOf("never", "env=test", "x"))
		xdstest.Equal(t, "verdict", ads.VerdictAccepted, v)
		e.silent()
		if got := d.k.c.Stats(); got.Unmatched != 2 || got.Unasked != 3 || got.Decoded != 0 {
			t.Errorf("Stats() is %+v, want 2 unmatched, 3 unasked and none decoded", got)
		}
	})
}

// Of variants, too, a push of unchanged resources decodes none, and
// allocates no more for more of them.
func TestPushOfUnchangedVariantsDecodesNone(t *testing.T) {
	for _, delta := range []bool{false, true} {
		const n = 10_000
		features, types := []string{"dynamic_parameter_constraints"}, newTestTypes()
		if delta {
			features = append(features, "delta")
		}
		k, heard := newCore(t, features...), &counter{}
		r := &answer{TypeUrl: types.clusters.TypeURL, SystemVersionInfo: "1", Nonce: "n"}
		for i := range n / 2 {
			name := fmt.Sprint("cluster-", i)
			for _, env := range []string{"prod", "test"} {
				k.c.WatchLocator(types.clusters, name, choose("env="+env), heard)
				variantOf(name, "env="+env, content(i)+env)(r)
			}
		}
		k.answer()
		message := mustMarshal(t, r)
		if !delta {
			message = mustMarshal(t, inSotW(t, r))
		}
		k.push(message)
		k.answer()
		allocs := testing.AllocsPerRun(5, func() { k.push(message); k.answer() })
		if allocs > 200 || types.decoded.Load() != n || heard.values != n || heard.errors != 0 {
			t.Errorf("delta %v: %v allocations; %d resources were decoded, and %+v told, want at most 200, %d and %d", delta, allocs, types.decoded.Load(), heard, n, n)
		}
	}
}

// A fault of one variant is no fault of another.
func TestInvalidVariantHitsItsSubscriptionsOnly(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		prod, test := d.watchBoth("env=prod", "env=test")
		d.says(variantOf("a", "env=prod", "p1"), variantOf("a", "env=test", "t1"))
		prod.cluster("p1")
		test.cluster("t1")
		if v := d.says(variantOf("a", "env=prod", "p2"), variantWith("a", "env=test", "2", badCluster("a", "no good"))); v != ads.VerdictRejected {
			t.Errorf("verdict %v, want rejected", v)
		}
		prod.cluster("p2")
		if err := test.ambient(KindInvalid); !strings.Contains(err.Error(), `"a" with {env=test} is invalid`) {
			t.Errorf("error %q does not name the constraints", err)
		}
		prod.silent()
	})
}

// A preferred variant that is invalid is not passed over for another one: the server
// is told, and what was in use stays.
func TestInvalidPreferredVariant(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		e, _ := d.watch("a", "shard=0-5")
		d.listens()
		d.says(variantWith("a", "shard=5", "1", badCluster("a", "x")), variantOf("a", "shard=3", "3"))
		e.fault(KindInvalid)
		e.silent()
	})
}

// Envoy, xDS protocol, "Duplicate Resource Names": variants are told apart by their
// parameters.
func TestDuplicateVariant(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		prod, test := d.watchBoth("env=prod", "env=test")
		v := d.says(variantOf("a", "env=prod", "1"), variantOf("a", "env=test", "t"), variantOf("a", "env=prod", "2"))
		xdstest.Equal(t, "verdict", ads.VerdictRejected, v)
		test.cluster("t")
		test.silent()
		last := prod.next()
		if last.err == nil { // the first one counts, if it was told before the second one was seen
			last = prod.next()
		}
		if last.err == nil || last.err.Kind != KindInvalid || !strings.Contains(last.err.Error(), "more than one resource") {
			t.Errorf("got %v, want an error that says what is wrong", last)
		}
	})
}

// Parameters that cannot be read are a fault of the resource. It may be for any
// subscription to the name that the response has nothing else for.
func TestUnreadableParameters(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		prod, test := d.watchBoth("env=prod", "env=test")
		unreadable := func(r *answer) {
			variantOf("a", "", "?")(r)
			last := r.Resources[len(r.Resources)-1]
			last.ProtoReflect().SetUnknown(appendField(nil, wrapperParameters, "\xff"))
		}
		xdstest.Equal(t, "verdict",
			ads.VerdictRejected, d.says(unreadable, variantOf("a", "env=prod", "p1")))
		prod.cluster("p1")
		prod.silent()
		test.fault(KindInvalid)
	})
}

// What a server sends for one subscription may match another one that has a better
// variant. A response with changes only (delta, and SotW of a type without full
// state) does not say for which it is.
func TestLesserVariantAfterAPreferredOne(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		d.types.clusters.FullStateInSotW = false
		wide, narrow := d.watchBoth("shard=0-5", "shard=3")
		d.says(variantOf("a", "shard=5", "5"))
		wide.cluster("5")
		d.hears()

		// For the other one, as it turns out when this one asks again.
		d.says(variantOf("a", "shard=3", "3"))
		narrow.cluster("3")
		wide.silent()
		if d.delta {
			d.hears("+a{shard in [0-5]}")
		} else {
			d.hears("-a{shard in [0-5]}", "+a{shard in [0-5]}")
		}
		d.says(variantOf("a", "shard=5", "5"))
		allSilent(wide, narrow)
		d.hears()

		// It is no news for the other one, so it is for this one.
		d.says(variantOf("a", "shard=3", "3"))
		wide.cluster("3")
		narrow.silent()
		d.hears()

		// And a better one is better at once.
		d.says(variantOf("a", "shard=4", "4"))
		wide.cluster("4")
		narrow.silent()
		d.hears()
	})
}

// A server that has lost the preferred variant, and changed the one that takes its
// place, is asked again.
func TestLesserVariantThatIsNewToTwo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDesk(t, true)
		wide, stop := d.watch("a", "shard=0-5")
		narrow, _ := d.watch("a", "shard=3")
		d.listens()
		d.says(variantOf("a", "shard=5", "5"), variantOf("a", "shard=3", "old"))
		wide.cluster("5")
		narrow.cluster("old")
		d.hears()
		d.says(variantOf("a", "shard=3", "new"))
		narrow.cluster("new")
		wide.silent()
		d.hears("+a{shard in [0-5]}")
		d.says(variantOf("a", "shard=3", "new"))
		wide.cluster("new")
		d.hears()

		// The server may also say at once that the better one is gone.
		d.says(variantOf("a", "shard=5", "5"))
		wide.cluster("5")
		d.says(gone("a", "shard=0-5"), variantOf("a", "shard=3", "newer"))
		allHear("newer", wide, narrow)
		d.hears()

		// A doubt is no reason to forget that the server knows of the subscription.
		d.says(variantOf("a", "shard=5", "5"))
		wide.cluster("5")
		d.says(variantOf("a", "shard=3", "newest"))
		stop()
		d.hears("-a{shard in [0-5]}")
	})
}

// The full state has all that there is.
func TestFullStateWithoutThePreferredVariant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDesk(t, false)
		wide, narrow := d.watchBoth("shard=0-5", "shard=3")
		d.says(variantOf("a", "shard=5", "5"), variantOf("a", "shard=3", "3"))
		wide.cluster("5")
		narrow.cluster("3")
		d.says(variantOf("a", "shard=3", "3'"))
		allHear("3'", wide, narrow)
	})
}

// Two subscriptions that both had the preferred variant both ask again, and take the
// next one.
func TestPreferredVariantOfTwoIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newDesk(t, true)
		one, two := d.watchBoth("shard=0-5", "shard=2-6")
		d.says(variantOf("a", "shard=5", "5"))
		allHear("5", one, two)
		d.hears()
		d.says(variantOf("a", "shard=3", "3"))
		d.hears("+a{shard in [0-5]}", "+a{shard in [2-6]}")
		allSilent(one, two)
		d.says(variantOf("a", "shard=3", "3"))
		allHear("3", one, two)
	})
}

// Variants with the same content are the same to a watcher, but not to the choice
// between them.
func TestVariantsOfEqualContent(t *testing.T) {
	overDesks(t, nil, func(t *testing.T, d *desk) {
		e, _ := d.watch("a", "shard=0-5")
		d.listens()
		d.says(variantOf("a", "shard=5", "x"))
		e.cluster("x")
		d.says(variantOf("a", "shard=4", "x"))
		e.silent()
		xdstest.Equal(t, "the variant in use",
			"{shard=4}", d.k.c.Dump().Resources[0].Parameters.String())
		d.types.wantDecoded(t, 1)
	})
}
