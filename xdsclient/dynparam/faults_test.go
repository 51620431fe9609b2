package dynparam

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/proto"

	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// Constraints are a value inside other JSON.
func TestJSONInside(t *testing.T) {
	t.Parallel()
	type inside struct{ C Constraints }
	given := inside{must(New(Require("<&>", Value("\u2028\x00\"")), Exclude("s", InRanges(Range{4, 6}, AtLeast(46)))))}
	text, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	var got inside
	if err := json.Unmarshal(text, &got); err != nil || !got.C.Equal(given.C) {
		t.Errorf("%s reads as %v, %v", text, got.C, err)
	}
	for _, wrong := range []string{`{"C": {"key_constraints": 1}}`, `{"C": 1}`} {
		if err := json.Unmarshal([]byte(wrong), &got); err == nil || !got.C.Equal(given.C) {
			t.Errorf("%s reads as %v, %v", wrong, got.C, err)
		}
	}
	text, err = must(New(Require("s", InRanges(Range{4, 6}, AtLeast(46)), Value("<5")))).MarshalJSON()
	want := `{"key_constraints":{"s":{"constraints":[{"value":"<5"},{"integer_range_list":{"range":[{"min_value":"4","max_value":"6"},{"min_value":"46"}]}}]}}}`
	if string(text) != want || err != nil {
		t.Errorf("got %s, %v, want %s", text, err, want)
	}
}

// A message of a program may have what none from the wire has. See also testdata/cases.txt.
func TestFromProtoFaults(t *testing.T) {
	t.Parallel()
	const bytes = "\xff"
	m := &discoveryv3.DynamicParameterConstraints{KeyConstraints: map[string]*protoKey{
		"a":   nil,
		"c":   {Constraints: []*protoConstraint{nil, {Constraint: &protoValue{Value: bytes}}}},
		"e":   {Constraints: []*protoConstraint{{Constraint: &protoRanges{IntegerRangeList: &protoList{Range: []*protoRange{nil}}}}}},
		bytes: {Constraints: []*protoConstraint{{Constraint: &protoValue{}}}},
	}}
	const want = `dynamic parameter constraints: 5 errors:
  key_constraints["a"].constraints: expected a list with at least one constraint, found an empty list
  key_constraints["c"].constraints[0]: expected value or integer_range_list, found neither
  key_constraints["c"].constraints[1].value: expected UTF-8, found other bytes
  key_constraints["e"].constraints[0].integer_range_list.range[0]: expected min_value, max_value or both, found neither
  key_constraints["\xff"]: expected UTF-8, found other bytes`
	if c, err := FromProto(m); err == nil || err.Error() != want || !c.IsZero() {
		t.Errorf("got %v, %v, want %s", c, err, want)
	}
}

// The errors of constraints that a program makes are those of messages.
func TestNewFaults(t *testing.T) {
	t.Parallel()
	_, err := New(
		Require("a"), Require("b", InRanges()), Require("b", Value("\xff")),
		Exclude("c", InRanges(Range{1, 2}, Range{9, 8}), Value("\xff")), Require("\xfe", Value("")),
		Require("d", Constraint{}))
	const want = `dynamic parameter constraints: 7 errors:
  key_constraints["b"]: expected the name once, found it again
  key_constraints["a"].constraints: expected a list with at least one constraint, found an empty list
  key_constraints["b"].constraints[0].value: expected UTF-8, found other bytes
  key_constraints["c"].constraints[0].integer_range_list.range[1]: expected a min_value that is at most max_value, found 9 and 8
  key_constraints["c"].constraints[1].value: expected UTF-8, found other bytes
  key_constraints["d"].constraints[0]: expected value or integer_range_list, found neither
  key_constraints["\xfe"]: expected UTF-8, found other bytes`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Constraints do not change with what they were made of.
func TestConstraintsAreTheirOwn(t *testing.T) {
	t.Parallel()
	ranges := []Range{{4, 6}, {1, 2}}
	list := []Constraint{InRanges(ranges...), Value("v")}
	keys := []KeyConstraints{Require("k", list...), Require("j", list...)}
	c := must(New(keys...))
	before := c.Key()
	other := must(New(keys...))
	ranges[0], list[1], keys[0] = Range{}, Value(""), Exclude("x", Value(""))
	m := c.ToProto()
	m.GetKeyConstraints()["j"].GetConstraints()[1].GetIntegerRangeList().GetRange()[0].MinValue = proto.Uint64(9)
	if must(FromProto(c.ToProto())).Key() != before || other.Key() != before {
		t.Errorf("%v and %v have changed", c, other)
	}
}
