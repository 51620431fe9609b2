package dynparam

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// example is a row of testdata/constraints.json.
type example struct {
	Given  string
	JSON   json.RawMessage
	Faults []string
}

func examples(t testing.TB) []example {
	t.Helper()
	data, err := os.ReadFile("testdata/constraints.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []example
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestParseJSON(t *testing.T) {
	t.Parallel()
	for _, test := range examples(t) {
		t.Run(test.Given, func(t *testing.T) {
			t.Parallel()
			c, err := fromJSON(test.JSON)
			got := problems(t, err)
			for i, fault := range test.Faults {
				test.Faults[i] = strings.TrimPrefix(fault, ": ")
			}
			if diff := cmp.Diff(test.Faults, got); diff != "" {
				t.Fatalf("faults (-want +got):\n%s", diff)
			}
			if err != nil {
				if !c.IsZero() {
					t.Errorf("there are constraints beside the error: %v", c)
				}
				return
			}
			// The standard reads it in the same way, where it reads it at all.
			m := new(discoveryv3.DynamicParameterConstraints)
			options := protojson.UnmarshalOptions{DiscardUnknown: true}
			if err := options.Unmarshal(test.JSON, m); err != nil {
				t.Logf("not standard: %v", err)
			} else if want := must(FromProto(m)); want.Key() != c.Key() {
				t.Errorf("the constraints are %v, to protojson they are %v", c, want)
			}
		})
	}
}

func TestJSONOfOtherText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ given, text, then string }{
		{"nothing", "", "dynamic parameter constraints: not JSON: line 1, column 1: unexpected end of JSON input"},
		{"half an object", `{"key_constraints"`, "dynamic parameter constraints: not JSON: line 1, column 18: unexpected end of JSON input"},
		{"two documents", `{} {}`, "dynamic parameter constraints: not JSON: line 1, column 4: invalid character '{' after top-level value"},
		{"bytes", "{\"\xff\": 1}", "dynamic parameter constraints: expected UTF-8, found other bytes"},
		{"too much", strings.Repeat(" ", maxJSONSize+1), "dynamic parameter constraints: expected at most 1048576 bytes, found 1048577"},
		{"much nesting", strings.Repeat("[", 1e5), "dynamic parameter constraints: not JSON: line 1, column 10001: invalid character '[' exceeded max depth"},
	} {
		c, err := fromJSON([]byte(test.text))
		if err == nil || !c.IsZero() {
			t.Errorf("given %s: got %v, %v", test.given, c, err)
		} else if diff := cmp.Diff(test.then, err.Error()); diff != "" {
			t.Errorf("given %s: error (-want +got):\n%s", test.given, diff)
		}
	}
}

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
	if diff := cmp.Diff(want, string(text)); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
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
	want := []string{
		`key_constraints["a"].constraints: expected a list with at least one constraint, found an empty list`,
		`key_constraints["c"].constraints[0]: expected value or integer_range_list, found neither`,
		`key_constraints["c"].constraints[1].value: expected UTF-8, found other bytes`,
		`key_constraints["e"].constraints[0].integer_range_list.range[0]: expected min_value, max_value or both, found neither`,
		`key_constraints["\xff"]: expected UTF-8, found other bytes`,
	}
	c, err := FromProto(m)
	equal(t, "faults", want, problems(t, err))
	if !c.IsZero() {
		t.Errorf("there are constraints beside the error: %v", c)
	}
	if !strings.HasPrefix(err.Error(), "dynamic parameter constraints: 5 errors:\n  key_constraints[\"a\"]") {
		t.Errorf("the error is %v", err)
	}
}

// The errors of constraints that a program makes are those of messages.
func TestNewFaults(t *testing.T) {
	t.Parallel()
	_, err := New(
		Require("a"), Require("b", InRanges()), Require("b", Value("\xff")),
		Exclude("c", InRanges(Range{1, 2}, Range{9, 8}), Value("\xff")), Require("\xfe", Value("")),
		Require("d", Constraint{}))
	want := []string{
		`key_constraints["a"].constraints: expected a list with at least one constraint, found an empty list`,
		`key_constraints["b"].constraints[0].integer_range_list.range: expected a list with at least one range, found an empty list`,
		`key_constraints["b"]: expected the name once, found it again`,
		`key_constraints["c"].constraints[0].integer_range_list.range[1]: expected a min_value that is at most max_value, found 9 and 8`,
		`key_constraints["c"].constraints[1].value: expected UTF-8, found other bytes`,
		`key_constraints["\xfe"]: expected UTF-8, found other bytes`,
	}
	equal(t, "faults", want, problems(t, err))
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

func TestLimits(t *testing.T) {
	t.Parallel()
	keys := func(n int) (all []KeyConstraints, values map[string]string) {
		values = map[string]string{}
		for i := range n {
			key := fmt.Sprint(i)
			all, values[key] = append(all, Require(key, Value("v"))), "v"
		}
		return all, values
	}
	enough, fits := keys(maxKeys)
	tooMany, exceeds := keys(maxKeys + 1)
	large := must(New(enough...)).ToProto()
	large.KeyConstraints["more"] = &protoKey{Constraints: []*protoConstraint{{Constraint: &protoValue{Value: "v"}}}}
	huge := message(t, `{key_constraints:{key:"k" value:{constraints:{value:"`+strings.Repeat("x", maxSize)+`"}}}}`)
	hugeText, err := protojson.Marshal(huge)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		given string
		err   func() error
		then  []string
	}{
		{"as many keys as may be", func() error { _, err := New(enough...); return err }, []string{}},
		{"as many parameters as may be", func() error { _, err := NewParameters(fits); return err }, []string{}},
		{"a key more", func() error { _, err := New(tooMany...); return err }, []string{"key_constraints: expected at most 128 keys, found 129"}},
		{"a key more in a message", func() error { _, err := FromProto(large); return err }, []string{"key_constraints: expected at most 128 keys, found 129"}},
		{"a parameter more", func() error { _, err := NewParameters(exceeds); return err }, []string{"dynamic_parameters: expected at most 128 keys, found 129"}},
		{"a large value", func() error { _, err := Exact(map[string]string{"k": strings.Repeat("x", maxSize)}); return err },
			[]string{"expected at most 65536 bytes, found 65555"}},
		{"a large value in a message", func() error { _, err := FromProto(huge); return err }, []string{"expected at most 65536 bytes, found 65555"}},
		{"one constraint ten thousand times", func() error {
			key := &protoKey{Constraints: slices.Repeat([]*protoConstraint{{Constraint: &protoValue{Value: "value"}}}, 10_000)}
			_, err := FromProto(&discoveryv3.DynamicParameterConstraints{KeyConstraints: map[string]*protoKey{"k": key}})
			return err
		}, []string{"expected at most 65536 bytes, found 90011"}},
		{"a large value in JSON", func() error { _, err := fromJSON(hugeText); return err }, []string{"expected at most 65536 bytes, found 65555"}},
		{"JSON as long as it may be", func() error {
			_, err := fromJSON([]byte("{}" + strings.Repeat(" ", maxJSONSize-2)))
			return err
		}, []string{}},
		{"a value as large as may be", func() error { _, err := Exact(map[string]string{"k": strings.Repeat("x", maxSize-19)}); return err }, []string{}},
		{"a large parameter", func() error {
			_, err := NewParameters(map[string]string{"k": strings.Repeat("x", maxSize)})
			return err
		}, []string{"dynamic_parameters: expected at most 65536 bytes, found 65547"}},
		{"parameters that are not text", func() error { _, err := NewParameters(map[string]string{"k": "\xff", "\xfe": ""}); return err },
			[]string{`dynamic_parameters["k"]: expected UTF-8, found other bytes`, `dynamic_parameters["\xfe"]: expected UTF-8, found other bytes`}},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.then, problems(t, test.err())); diff != "" {
			t.Errorf("given %s: faults (-want +got):\n%s", test.given, diff)
		}
	}
}

// The largest constraints that there are can be written as JSON and read back.
func TestLargestConstraintsAsJSON(t *testing.T) {
	t.Parallel()
	var ranges []Range
	for i := range uint64(5_400) {
		ranges = append(ranges, Range{1<<20 + 3*i, 1<<20 + 3*i + 1})
	}
	for given, c := range map[string]Constraints{
		"ranges":             must(New(Require("shard", InRanges(ranges...)))),
		"control characters": must(Exact(map[string]string{"k": strings.Repeat("\x01", maxSize-40)})),
	} {
		text, err := c.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := fromJSON(text); err != nil || !again.Equal(c) {
			t.Errorf("%s, %d bytes on the wire and %d as JSON, read back with %v", given, len(c.Key()), len(text), err)
		}
	}
}

// A report is bounded, and counts the errors that it leaves out.
func TestFaultsAreBounded(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	b.WriteString(`{"key_constraints": {"` + strings.Repeat("k", 1000) + `": {"constraints": [{}`)
	for range 499 {
		b.WriteString(", {}")
	}
	b.WriteString("]}}}")
	_, err := fromJSON(b.Bytes())
	var faults *Faults
	if !errors.As(err, &faults) || len(faults.List) != 100 || faults.Omitted != 400 {
		t.Fatalf("the error is %v", err)
	}
	if text := err.Error(); len(text) > 100*400 || !strings.HasPrefix(text, "dynamic parameter constraints: 500 errors:\n") ||
		!strings.HasSuffix(text, "\n  and 400 more") {
		t.Errorf("the error is %s", text)
	}
}
