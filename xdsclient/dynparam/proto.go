package dynparam

import (
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// FromProto returns the constraints of a message, which it does not keep. nil is a message
// without constraints. The error is a *[Faults]: what New refuses, a constraint that is
// neither a value nor a list of ranges, and a range without bounds. Unknown fields are
// ignored.
func FromProto(m *discoveryv3.DynamicParameterConstraints) (Constraints, error) {
	faults := Faults{Source: whatConstraints}
	return result(readConstraints(m, nil, &faults), &faults)
}

// readConstraints returns drafts of the constraints in the message at the path. A message
// that is too large is not read.
func readConstraints(m *discoveryv3.DynamicParameterConstraints, at *path, faults *Faults) []KeyConstraints {
	if size := proto.Size(m); size > maxSize {
		faults.Addf(at, tooLarge, maxSize, size)
		return nil
	}
	root := at.Field("key_constraints")
	drafts := make([]KeyConstraints, 0, len(m.GetKeyConstraints()))
	for _, key := range slices.Sorted(maps.Keys(m.GetKeyConstraints())) {
		at, message := root.Key(key), m.GetKeyConstraints()[key]
		draft := KeyConstraints{key: key, invert: message.GetInvert(), all: make([]Constraint, 0, len(message.GetConstraints()))}
		for i, c := range message.GetConstraints() {
			draft.all = append(draft.all, readConstraint(c, at.Item("constraints", i), faults))
		}
		draft.check(at, faults)
		drafts = append(drafts, draft)
	}
	return drafts
}

type (
	protoConstraint = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint
	protoRange      = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_IntegerRangeList_Range
)

func readConstraint(m *protoConstraint, at *path, faults *Faults) Constraint {
	switch m.GetConstraint().(type) {
	case *discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_Value:
		return Value(m.GetValue())
	case *discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_IntegerRangeList_:
		list := m.GetIntegerRangeList().GetRange()
		ranges := make([]Range, len(list))
		for i, r := range list {
			if r == nil {
				r = new(protoRange)
			}
			var ok bool
			if ranges[i], ok = rangeOf(r.MinValue, r.MaxValue); !ok {
				faults.Addf(at.Field("integer_range_list").Item("range", i), noBound)
			}
		}
		return Constraint{kind: inRanges, ranges: ranges}
	default:
		faults.Addf(at, noKind)
		return Constraint{}
	}
}

// rangeOf returns the range with the bounds, either of which may be missing, but not both.
func rangeOf(low, high *uint64) (r Range, ok bool) {
	r = AtLeast(0)
	if low != nil {
		r.Min = *low
	}
	if high != nil {
		r.Max = *high
	}
	return r, low != nil || high != nil
}

// ToProto returns the constraints as a new message, which is never nil, in canonical form:
// lists in order, each range with a min_value, and with a max_value unless that is 2^64-1.
func (c Constraints) ToProto() *discoveryv3.DynamicParameterConstraints {
	m := new(discoveryv3.DynamicParameterConstraints)
	if c.IsZero() {
		return m
	}
	m.KeyConstraints = make(map[string]*discoveryv3.DynamicParameterConstraints_KeyConstraints, len(c.keys()))
	for _, k := range c.keys() {
		key := &discoveryv3.DynamicParameterConstraints_KeyConstraints{Invert: k.invert}
		for _, constraint := range k.all {
			key.Constraints = append(key.Constraints, constraint.toProto())
		}
		m.KeyConstraints[k.key] = key
	}
	return m
}

// wireForm returns the constraints in wire form. It is of no use if they have text that is not UTF-8.
func (c Constraints) wireForm() string {
	wire, _ := proto.MarshalOptions{Deterministic: true}.Marshal(c.ToProto())
	return string(wire)
}

// bounded reports whether the canonical form of the range has a max_value. It always has a
// min_value.
func (r Range) bounded() bool { return r.Max != math.MaxUint64 }

func (c Constraint) toProto() *protoConstraint {
	if c.kind == exactly {
		return &protoConstraint{Constraint: &discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_Value{Value: c.value}}
	}
	list := new(discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_IntegerRangeList)
	for _, r := range c.ranges {
		message := &protoRange{MinValue: proto.Uint64(r.Min)}
		if r.bounded() {
			message.MaxValue = proto.Uint64(r.Max)
		}
		list.Range = append(list.Range, message)
	}
	return &protoConstraint{Constraint: &discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_IntegerRangeList_{IntegerRangeList: list}}
}
