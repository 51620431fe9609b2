package testutils

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// The server's choice and the client's (package dynparam) are written twice, and agree.
func TestChooseAgreesWithTheClient(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 7))
	keys, values := []string{"env", "shard", "version"}, []string{"", "prod", "v1", "0", "1", "3", "007", "10", "-1", "18446744073709551616"}
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	for range 4_000 {
		var constrained []dynparam.KeyConstraints
		for _, key := range keys {
			var all []dynparam.Constraint
			for range r.IntN(3) {
				first := uint64(r.IntN(5))
				last := []uint64{first, first + 3, math.MaxUint64}[r.IntN(3)]
				all = append(all, []dynparam.Constraint{dynparam.Value(pick(values)), dynparam.InRanges(dynparam.Range{Min: first, Max: last})}[r.IntN(2)])
			}
			switch {
			case len(all) == 0:
			case r.IntN(3) == 0:
				constrained = append(constrained, dynparam.Exclude(key, all...))
			default:
				constrained = append(constrained, dynparam.Require(key, all...))
			}
		}
		constraints, err := dynparam.New(constrained...)
		if err != nil {
			t.Fatal(err)
		}
		have := variants{}
		for range r.IntN(6) {
			parameters := map[string]string{}
			for _, key := range keys {
				if r.IntN(3) > 0 {
					parameters[key] = pick(values)
				}
			}
			have[parametersKey(parameters)] = &variant{parameters: parameters}
		}
		var listed []dynparam.Parameters
		for _, v := range have {
			p, err := dynparam.NewParameters(v.parameters)
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, p)
			if got, want := matches(constraints.ToProto(), v.parameters), constraints.Match(p); got != want {
				t.Fatalf("%v matches %v: %t, the client says %t", constraints, p, got, want)
			}
		}
		want, got := "none", "none"
		if i := constraints.Choose(listed).Index; i >= 0 {
			want = fmt.Sprint(listed[i].Map())
		}
		if v := have.choose(constraints.ToProto()); v != nil {
			got = fmt.Sprint(v.parameters)
		}
		if want == "map[]" && got == "map[]" || want == got {
			continue
		}
		t.Fatalf("of %v for %v the server chooses %s, the client %s", slices.Sorted(maps.Keys(have)), constraints, got, want)
	}
}
