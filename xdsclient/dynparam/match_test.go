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

// The sentences of TP2's "API Changes" about the fields of the message.
func TestMatch(t *testing.T) {
	t.Parallel()
	on := func(constraints string) string {
		return `{key_constraints:[{key:"k" value:{` + constraints + `}}]}`
	}
	inRange := func(bounds string) string { return on(`constraints:{integer_range_list:{range:{` + bounds + `}}}`) }
	tests := []struct {
		rule        string
		constraints string
		yes, no     []string // values of k
	}{
		{"The key must have this specific value.", on(`constraints:{value:"prod"}`),
			[]string{"prod"}, []string{"", "Prod", "pro", "prod "}},
		{"the specific value may be empty", on(`constraints:{value:""}`), []string{""}, []string{" ", "0"}},
		{"a specific value is text, even if it is an integer", on(`constraints:{value:"5"}`), []string{"5"}, []string{"05", "6"}},
		{"value may not be less than this", inRange(`min_value:4`),
			[]string{"4", "5", "04", "18446744073709551615"}, []string{"3", "0"}},
		{"value may not be greater than this", inRange(`max_value:6`), []string{"0", "6", "000006"}, []string{"7", "18446744073709551615"}},
		{"both bounds", inRange(`min_value:4 max_value:6`), []string{"4", "5", "6"}, []string{"3", "7"}},
		{"a bound of 0 is a bound", inRange(`max_value:0`), []string{"0", "00"}, []string{"1"}},
		{"The key's value must be integers", inRange(`min_value:0`),
			[]string{"0", "18446744073709551615", strings.Repeat("0", 30) + "7"},
			[]string{"", "x", "1x", "+1", "-1", " 1", "1 ", "1.0", "1e3", "1_0", "0x1", "१", "18446744073709551616", "99999999999999999999"}},
		{"A value is considered to match if it falls in any of the ranges.",
			on(`constraints:{integer_range_list:{range:{min_value:1 max_value:2} range:{min_value:5}}}`),
			[]string{"1", "2", "5", "9"}, []string{"0", "3", "4"}},
		{"All constraints must be met.",
			on(`constraints:{integer_range_list:{range:{min_value:1}}} constraints:{integer_range_list:{range:{max_value:5}}}`),
			[]string{"1", "3", "5"}, []string{"0", "6"}},
		{"no value meets two specific values", on(`constraints:{value:"a"} constraints:{value:"b"}`), nil, []string{"a", "b", ""}},
		{"invert: the value must not meet the constraint", on(`invert:true constraints:{value:"prod"}`),
			[]string{"test", ""}, []string{"prod"}},
		{"invert: the value must not meet all of the constraints",
			on(`invert:true constraints:{value:"a"} constraints:{value:"b"}`), []string{"a", "b", "c"}, nil},
		{"invert: a value that is no integer is in no range", on(`invert:true constraints:{integer_range_list:{range:{min_value:1 max_value:2}}}`),
			[]string{"0", "3", "x", ""}, []string{"1", "2"}},
	}
	for _, test := range tests {
		t.Run(test.rule, func(t *testing.T) {
			t.Parallel()
			c := constraints(t, test.constraints)
			for _, value := range test.yes {
				if !c.Match(must(NewParameters(map[string]string{"k": value}))) {
					t.Errorf("%v does not match %q", c, value)
				}
			}
			for _, value := range test.no {
				if c.Match(must(NewParameters(map[string]string{"k": value}))) {
					t.Errorf("%v matches %q", c, value)
				}
			}
			// "if a key has a constraint here but is not present on the resource, it
			// will match, regardless of what the constraint says"
			for _, without := range []string{"{}", "{j=x}", "{l=x}"} {
				if !c.Match(parameters(t, without)) {
					t.Errorf("%v does not match %s", c, without)
				}
			}
		})
	}
}

// "One entry per key": the constraints on every key of the resource have to be met,
// and keys without constraints do not count.
func TestMatchSeveralKeys(t *testing.T) {
	t.Parallel()
	c := constraints(t, `{key_constraints:[
		{key:"b" value:{constraints:{value:"1"}}},
		{key:"d" value:{constraints:{value:"2"}}}]}`)
	for params, want := range map[string]bool{
		"{b=1,d=2}": true, "{b=1}": true, "{d=2}": true, "{a=9,b=1,c=9,d=2,e=9}": true, "{a=9,c=9,e=9}": true,
		"{b=2,d=2}": false, "{b=1,d=1}": false, "{a=9,b=2}": false, "{d=1,e=9}": false,
	} {
		if got := c.Match(parameters(t, params)); got != want {
			t.Errorf("%v matches %s: %t, want %t", c, params, got, want)
		}
	}
	if !(Constraints{}).Match(parameters(t, "{b=2}")) || !c.Match(Parameters{}) {
		t.Error("no constraints, or no parameters, do not match")
	}
}

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

type (
	protoKey    = discoveryv3.DynamicParameterConstraints_KeyConstraints
	protoValue  = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_Value
	protoRanges = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_IntegerRangeList_
	protoList   = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_IntegerRangeList
)

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
