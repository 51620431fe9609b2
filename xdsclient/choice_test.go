package xdsclient

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

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
