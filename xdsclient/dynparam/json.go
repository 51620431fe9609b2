package dynparam

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/dynxds/dynxds/internal/jsonpath"
)

// ParseJSON reads a DynamicParameterConstraints message in proto JSON form, as the
// bootstrap file has it: names of fields in either spelling, 64-bit integers in
// quotes or without, null for what is not set. Unknown fields are ignored; a field or
// a key that occurs twice is a fault. The error is a *[Faults] with everything that
// is wrong, or says why the text is not JSON.
func ParseJSON(data []byte) (Constraints, error) {
	var faults collector
	switch {
	case len(data) > MaxJSONSize:
		faults.add(nil, tooLarge, MaxJSONSize, len(data))
		return Constraints{}, faults.err(whatConstraints)
	case !utf8.Valid(data):
		faults.add(nil, "expected UTF-8, found other bytes")
		return Constraints{}, faults.err(whatConstraints)
	}
	document, err := jsonpath.Document(data, &faults.Collector)
	if err != nil {
		return Constraints{}, fmt.Errorf("%s: %w", whatConstraints, err)
	}
	drafts := parseConstraints(document)
	return result(drafts, &faults)
}

func parseConstraints(v jsonpath.Value) []KeyConstraints {
	o, _ := v.Object("key_constraints", "keyConstraints")
	keys := o.GetProto("key_constraints", "keyConstraints")
	if keys.Absent() {
		return nil
	}
	var drafts []KeyConstraints
	for name, entry := range keys.Entries() {
		drafts = append(drafts, parseKey(name, entry))
	}
	return drafts
}

func parseKey(name string, v jsonpath.Value) KeyConstraints {
	draft := KeyConstraints{key: name}
	o, ok := v.Object("constraints", "invert")
	if !ok {
		return draft
	}
	if invert := o.Get("invert"); !invert.Absent() {
		draft.invert = invert.Boolean()
	}
	for element := range o.Get("constraints").NonEmpty(listOfConstraints) {
		draft.all = append(draft.all, parseConstraint(element))
	}
	return draft
}

func parseConstraint(v jsonpath.Value) Constraint {
	o, ok := v.Object("value", "integer_range_list", "integerRangeList")
	if !ok {
		return Constraint{}
	}
	exact, ranges := o.Get("value"), o.GetProto("integer_range_list", "integerRangeList")
	switch {
	case exact.Absent() && ranges.Absent():
		v.Fail(noKind)
	case !exact.Absent() && !ranges.Absent():
		v.Fail("expected either value or integer_range_list, found both")
	case ranges.Absent():
		return Value(exact.Text())
	default:
		return Constraint{kind: inRanges, ranges: parseRanges(ranges)}
	}
	return Constraint{}
}

func parseRanges(v jsonpath.Value) []Range {
	o, ok := v.Object("range")
	if !ok {
		return nil
	}
	var ranges []Range
	for element := range o.Get("range").NonEmpty(listOfRanges) {
		ranges = append(ranges, parseRange(element))
	}
	return ranges
}

func parseRange(v jsonpath.Value) Range {
	o, ok := v.Object("min_value", "minValue", "max_value", "maxValue")
	if !ok {
		return Range{}
	}
	low, lowOK := o.GetProto("min_value", "minValue").Uint64()
	high, highOK := o.GetProto("max_value", "maxValue").Uint64()
	if !lowOK || !highOK {
		return Range{}
	}
	r, problem := rangeOf(low, high)
	if problem != "" {
		v.Fail("%s", problem)
	}
	return r
}

// The shape of the message in JSON. Integers are in quotes, as proto JSON has them.
type (
	jsonSet struct {
		KeyConstraints map[string]jsonKey `json:"key_constraints,omitempty"`
	}
	jsonKey struct {
		Constraints []jsonConstraint `json:"constraints"`
		Invert      bool             `json:"invert,omitempty"`
	}
	jsonConstraint struct {
		Value            *string     `json:"value,omitempty"`
		IntegerRangeList *jsonRanges `json:"integer_range_list,omitempty"`
	}
	jsonRanges struct {
		Range []jsonRange `json:"range"`
	}
	jsonRange struct {
		Min string `json:"min_value"`
		Max string `json:"max_value,omitempty"`
	}
)

// MarshalJSON returns the canonical form in proto JSON form, which ParseJSON, the
// bootstrap file and any implementation of proto JSON read. Equal constraints give
// equal text.
func (c Constraints) MarshalJSON() ([]byte, error) {
	var m jsonSet
	for _, k := range c.keys() {
		if m.KeyConstraints == nil {
			m.KeyConstraints = make(map[string]jsonKey, c.Len())
		}
		key := jsonKey{Invert: k.invert}
		for i := range k.all {
			key.Constraints = append(key.Constraints, k.all[i].toJSON())
		}
		m.KeyConstraints[k.key] = key
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(m)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

func (c *Constraint) toJSON() jsonConstraint {
	if c.kind == exactly {
		return jsonConstraint{Value: &c.value}
	}
	list := new(jsonRanges)
	for _, r := range c.ranges {
		bounds := jsonRange{Min: strconv.FormatUint(r.Min, 10)}
		if r.bounded() {
			bounds.Max = strconv.FormatUint(r.Max, 10)
		}
		list.Range = append(list.Range, bounds)
	}
	return jsonConstraint{IntegerRangeList: list}
}

// UnmarshalJSON sets the constraints to what ParseJSON returns, for values inside
// other JSON. Do not call it on constraints that anyone else uses.
func (c *Constraints) UnmarshalJSON(data []byte) error {
	parsed, err := ParseJSON(data)
	if err == nil {
		*c = parsed
	}
	return err
}
