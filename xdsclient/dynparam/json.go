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
	m := parseConstraints(message)
	if err := faults.Err(); err != nil {
		return err
	}
	parsed, err := result(m, &faults)
	if err == nil {
		*c = parsed
	}
	return err
}

func parseConstraints(v jsondoc.Value) *protoConstraints {
	m := &protoConstraints{KeyConstraints: make(map[string]*protoKey)}
	for name, entry := range v.Object("key_constraints", "keyConstraints").ProtoField("key_constraints", "keyConstraints").Entries() {
		o := entry.Object("constraints", "invert")
		key := &protoKey{Invert: o.Field("invert").Bool()}
		for _, element := range o.Field("constraints").NonEmpty(listOfConstraints) {
			key.Constraints = append(key.Constraints, parseConstraint(element))
		}
		m.KeyConstraints[name] = key
	}
	return m
}

func parseConstraint(v jsondoc.Value) *protoConstraint {
	o := v.Object("value", "integer_range_list", "integerRangeList")
	exact, ranges := o.Field("value"), o.ProtoField("integer_range_list", "integerRangeList")
	switch {
	case exact.Absent() && ranges.Absent():
		o.Fault("", noKind)
	case !exact.Absent() && !ranges.Absent():
		o.Fault("", "expected either value or integer_range_list, found both")
	case ranges.Absent():
		return Value(exact.Text()).message
	default:
		return &protoConstraint{Constraint: &protoRanges{IntegerRangeList: parseRanges(ranges)}}
	}
	return nil
}

func parseRanges(v jsondoc.Value) *protoList {
	m := new(protoList)
	for _, element := range v.Object("range").Field("range").NonEmpty(listOfRanges) {
		o := element.Object("min_value", "minValue", "max_value", "maxValue")
		low, lowOK := parseBound(o.ProtoField("min_value", "minValue"))
		high, highOK := parseBound(o.ProtoField("max_value", "maxValue"))
		r := &protoRange{MinValue: low, MaxValue: high}
		if wrong := wrongWith(r); wrong != "" && lowOK && highOK {
			o.Fault("", "%s", wrong)
		}
		m.Range = append(m.Range, r)
	}
	return m
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
