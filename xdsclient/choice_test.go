package xdsclient

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// variants are the features of a server that is asked for variants.
var variants = []string{"dynamic_parameter_constraints"}

func TestChoiceOfVariants(t *testing.T) {
	stats := func(want func(Stats) bool) func(x *transcript) {
		return func(x *transcript) {
			if got := x.c.Stats(); !want(got) {
				x.t.Errorf("Stats() is %+v", got)
			}
		}
	}
	// A choice that TP2 leaves open is made alike whatever the order, and counted.
	ambiguous := func(constraint, chosen, other string) string {
		return fmt.Sprintf(`
			watch x=a{%[1]s}             -> stream; req +a{%[1]s}
			send 1 a{%[2]s}=1 a{%[3]s}=2 -> ack 1; x = 1
			send 2 a{%[3]s}=2 a{%[2]s}=1 -> ack 2
		`, constraint, chosen, other)
	}
	bothCounted := stats(func(s Stats) bool { return s.Ambiguous == 2 })
	runTranscripts(t, []transcriptTest{
		// TP2, "Matching Behavior and Best Practices": "the largest possible matching value is preferred",
		// whatever the order in which a response has the variants. None of the others is decoded.
		{name: "largest matching value", servers: variants, steps: `
			watch x=a{shard=0-5} -> stream; req +a{shard=0-5}
			send 1 a{shard=3}=13 a{shard=5}=15 a{shard=6}=16               -> ack 1; x = 15
			send 2 a{shard=5}=25 a{shard=6}=26 a{shard=3}=23               -> ack 2; x = 25
			send 3 a{shard=6}=36 a{shard=5}=35 a{shard=3}=33 a{shard=4}=34 -> ack 3; x = 35
		`, then: stats(func(s Stats) bool {
			return s.Decoded == 3 && s.Unmatched == 3 && s.Unasked == 3 && s.Ambiguous == 0
		})},
		{name: "ambiguous: a key that the client does not ask for", servers: variants, steps: ambiguous("env=prod", "env=prod,v=1", "env=prod,v=2"), then: bothCounted},
		{name: "ambiguous: a key that one variant does not have", servers: variants, steps: ambiguous("v=1", "v=1", "env=x"), then: bothCounted},
		// A variant that matches no subscription is dropped and counted, and is no fault.
		{name: "no subscription matches", servers: variants, steps: `
			watch x=a{env=prod} -> stream; req +a{env=prod}
			send 1 a{env=test}=x a{env=test}!x never{env=test}=x -> ack 1
		`, then: stats(func(s Stats) bool { return s.Unmatched == 2 && s.Unasked == 3 && s.Decoded == 0 })},
		// A fault of one variant is no fault of another.
		{name: "invalid variant", servers: variants, steps: `
			watch prod=a{env=prod} test=a{env=test} -> stream; req +a{env=prod} +a{env=test}
			send 1 a{env=prod}=p1 a{env=test}=t1    -> ack 1; prod = p1; test = t1
			send 2 a{env=prod}=p2 a{env=test}!no    -> nack 2; prod = p2; test ambient: invalid
		`, then: func(x *transcript) {
			for _, r := range x.c.Dump().Resources {
				if f := r.Failure; f != nil && !strings.Contains(f.Err.Error(), `"a" with {env=test} is invalid`) {
					x.t.Errorf("error %q does not name the constraints", f.Err)
				}
			}
		}},
		// A preferred variant that is invalid is not passed over for another one: the server gets a NACK, and
		// what was in use stays.
		{name: "invalid preferred variant", servers: variants, steps: `
			watch x=a{shard=0-5}              -> stream; req +a{shard=0-5}
			send 1 a{shard=5}!no a{shard=3}=3 -> nack 1; x: invalid
		`},
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
