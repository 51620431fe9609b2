package dynparam

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// What random messages and parameters are made of: few keys, so that they meet, and
// values at the edges.
var (
	someKeys   = []string{"", "a", "b", "c", "aa"}
	someValues = []string{"", "0", "1", "3", "5", "05", "10", "prod", "v1", "-1", "+3", " 3", "3.0",
		"18446744073709551614", "18446744073709551615", "18446744073709551616", "184467440737095516150"}
	someBounds = []uint64{0, 1, 3, 4, 5, 10, math.MaxUint64 - 1, math.MaxUint64}
)

// randomMessage makes a message that FromProto accepts.
func randomMessage(r *rand.Rand) *discoveryv3.DynamicParameterConstraints {
	m := &discoveryv3.DynamicParameterConstraints{KeyConstraints: map[string]*protoKey{}}
	for range r.IntN(4) {
		key := &protoKey{Invert: r.IntN(3) == 0}
		for range 1 + r.IntN(2) {
			key.Constraints = append(key.Constraints, randomConstraint(r))
		}
		m.KeyConstraints[pick(r, someKeys)] = key
	}
	return m
}

func randomConstraint(r *rand.Rand) *protoConstraint {
	if r.IntN(2) == 0 {
		return &protoConstraint{Constraint: &protoValue{Value: pick(r, someValues)}}
	}
	list := new(protoList)
	for range 1 + r.IntN(4) {
		low, high := pick(r, someBounds), pick(r, someBounds)
		bounds := new(protoRange)
		switch r.IntN(3) {
		case 0:
			bounds.MinValue = &low
		case 1:
			bounds.MaxValue = &high
		default:
			low, high = min(low, high), max(low, high)
			bounds.MinValue, bounds.MaxValue = &low, &high
		}
		list.Range = append(list.Range, bounds)
	}
	return &protoConstraint{Constraint: &protoRanges{IntegerRangeList: list}}
}

func randomParameters(r *rand.Rand) map[string]string {
	values := map[string]string{}
	for range r.IntN(5) {
		values[pick(r, someKeys)] = pick(r, someValues)
	}
	return values
}

// oracle is Match as TP2 has it, sentence by sentence.
func oracle(m *discoveryv3.DynamicParameterConstraints, params map[string]string) bool {
	for key, constraints := range m.GetKeyConstraints() {
		value, ok := params[key]
		if !ok {
			continue
		}
		all := true
		for _, c := range constraints.GetConstraints() {
			if list := c.GetIntegerRangeList(); list != nil {
				all = all && oracleInAny(list.GetRange(), value)
			} else {
				all = all && c.GetValue() == value
			}
		}
		if all == constraints.GetInvert() {
			return false
		}
	}
	return true
}

func oracleInAny(ranges []*protoRange, value string) bool {
	if value == "" || strings.Trim(value, "0123456789") != "" {
		return false
	}
	n, _ := new(big.Int).SetString(value, 10)
	if !n.IsUint64() {
		return false
	}
	for _, r := range ranges {
		if (r.MinValue == nil || n.Uint64() >= *r.MinValue) && (r.MaxValue == nil || n.Uint64() <= *r.MaxValue) {
			return true
		}
	}
	return false
}

// For any constraints and parameters, Match agrees with the text.
func TestMatchAgreesWithTheText(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	outcomes := map[bool]int{}
	for range 30_000 {
		m, params := randomMessage(r), randomParameters(r)
		want := oracle(m, params)
		outcomes[want]++
		if got := must(FromProto(m)).Match(must(NewParameters(params))); got != want {
			t.Fatalf("Match is %t, want %t\nconstraints: %v\nparameters: %q", got, want, m, params)
		}
	}
	if min(outcomes[true], outcomes[false]) < 3_000 {
		t.Errorf("the draws are lopsided: %v", outcomes)
	}
}

// Matching is done for each resource of each response.
func TestMatchDoesNotAllocate(t *testing.T) {
	c, p := five(t)
	all := []Parameters{p, p}
	types := must(NewByType(map[string]Constraints{"T": c}))
	if n := testing.AllocsPerRun(100, func() {
		if !c.Match(p) || c.Choose(all).Index != 0 || c.Key() == "" || p.Key() == "" || types.For("type.googleapis.com/T").IsZero() {
			t.Error("the parameters do not match")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// five returns constraints on five keys and a resource that has them and matches.
func five(t testing.TB) (Constraints, Parameters) {
	t.Helper()
	keys, params := []KeyConstraints{}, map[string]string{}
	for i := range 3 {
		key := fmt.Sprintf("exact.parameter.%d", i)
		keys = append(keys, Require(key, Value("a.value.of.some.length")))
		params[key] = "a.value.of.some.length"
	}
	keys = append(keys,
		Require("shard", InRanges(Range{4, 6}, Range{11, 15}, Range{46, 90})),
		Exclude("version", Value("v1")))
	params["shard"], params["version"] = "47", "v2"
	return must(New(keys...)), must(NewParameters(params))
}
