package dynparam

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/jsondoc"
)

// UnmarshalJSON sets the constraints to a DynamicParameterConstraints message in proto
// JSON form, as the bootstrap file has it: names of fields in either spelling, 64-bit
// integers in quotes or without, null for what is not set. Unknown fields are ignored; a
// field or a key that occurs twice is an error. The error is a *[Faults] with everything
// that is wrong, or says why the text is not JSON; then the constraints stay as they are.
// Do not call it on constraints that anyone else uses.
func (c *Constraints) UnmarshalJSON(data []byte) error {
	faults := Faults{Source: whatConstraints}
	switch {
	case len(data) > maxJSONSize:
		faults.Addf(nil, tooLarge, maxJSONSize, len(data))
		return faults.Err()
	case !utf8.Valid(data):
		faults.Addf(nil, "expected UTF-8, found other bytes")
		return faults.Err()
	}
	message, err := jsondoc.Parse(data, &faults)
	if err != nil {
		return fmt.Errorf("%s: %w", whatConstraints, err)
	}
	parsed, err := result(parseConstraints(message), &faults)
	if err == nil {
		*c = parsed
	}
	return err
}

func parseConstraints(v jsondoc.Value) []KeyConstraints {
	keys := v.Object("key_constraints", "keyConstraints").ProtoField("key_constraints", "keyConstraints")
	var drafts []KeyConstraints
	for name, entry := range keys.Entries() {
		drafts = append(drafts, parseKey(name, entry))
	}
	return drafts
}

func parseKey(name string, v jsondoc.Value) KeyConstraints {
	draft := KeyConstraints{key: name}
	o := v.Object("constraints", "invert")
	if !o.IsObject() {
		return draft
	}
	if invert := o.Field("invert"); invert.Kind() == jsondoc.KindBool {
		draft.invert = invert.Bool()
	} else if !invert.Absent() {
		invert.Expected("a boolean")
	}
	for _, element := range o.Field("constraints").NonEmpty(listOfConstraints) {
		draft.all = append(draft.all, parseConstraint(element))
	}
	return draft
}

func parseConstraint(v jsondoc.Value) Constraint {
	o := v.Object("value", "integer_range_list", "integerRangeList")
	exact, ranges := o.Field("value"), o.ProtoField("integer_range_list", "integerRangeList")
	switch {
	case !o.IsObject():
	case exact.Absent() && ranges.Absent():
		v.Fault("", noKind)
	case !exact.Absent() && !ranges.Absent():
		v.Fault("", "expected either value or integer_range_list, found both")
	case ranges.Absent():
		return Value(exact.Text())
	default:
		return Constraint{kind: inRanges, ranges: parseRanges(ranges)}
	}
	return Constraint{}
}

func parseRanges(v jsondoc.Value) []Range {
	o := v.Object("range")
	if !o.IsObject() {
		return nil
	}
	var ranges []Range
	for _, element := range o.Field("range").NonEmpty(listOfRanges) {
		ranges = append(ranges, parseRange(element))
	}
	return ranges
}

func parseRange(v jsondoc.Value) Range {
	o := v.Object("min_value", "minValue", "max_value", "maxValue")
	low, lowOK := parseBound(o.ProtoField("min_value", "minValue"))
	high, highOK := parseBound(o.ProtoField("max_value", "maxValue"))
	if !o.IsObject() || !lowOK || !highOK {
		return Range{}
	}
	r, ok := rangeOf(low, high)
	switch {
	case !ok:
		v.Fault("", noBound)
	case r.Min > r.Max:
		v.Fault("", "%s", r.misordered())
	}
	return r
}

// parseBound reads an integer as proto JSON has it, in quotes or without. n is nil if
// there is none, and ok is false if there is something else.
func parseBound(v jsondoc.Value) (n *uint64, ok bool) {
	if v.Absent() {
		return nil, true
	}
	var wrapper wrapperspb.UInt64Value
	if err := protojson.Unmarshal(v.Raw(), &wrapper); err != nil {
		v.Fault("", "expected an integer from 0 to 2^64-1, found %s that is none", v.Kind())
		return nil, false
	}
	return &wrapper.Value, true
}

// MarshalJSON returns the canonical form in proto JSON form, which UnmarshalJSON, the
// bootstrap file and any implementation of proto JSON read. Equal constraints give equal
// text.
func (c Constraints) MarshalJSON() ([]byte, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(c.ToProto())
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer // without the spaces that protojson adds at random
	err = json.Compact(&b, text)
	return b.Bytes(), err
}
