package dynparam

import (
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// FromProto returns the constraints of a message, which it does not keep. nil is a
// message without constraints. The error is a *[Faults]; besides what New refuses, it
// names a key without constraints, a constraint that is neither a value nor a list of
// ranges, a list without ranges and a range without bounds. Unknown fields are
// ignored.
func FromProto(m *discoveryv3.DynamicParameterConstraints) (Constraints, error) {
	if len(m.GetKeyConstraints()) == 0 {
		return Constraints{}, nil
	}
	faults := Faults{Source: whatConstraints}
	drafts := readConstraints(m, nil, &faults)
	return result(drafts, &faults)
}

// readConstraints returns drafts of the constraints in the message at the path. It
// stops early at a message that is too large to be read to its end.
func readConstraints(m *discoveryv3.DynamicParameterConstraints, at *path, faults *Faults) []KeyConstraints {
	if size := proto.Size(m); size > maxSize {
		faults.Addf(at, tooLarge, maxSize, size)
		return nil
	}
	root := at.Field("key_constraints")
	drafts := make([]KeyConstraints, 0, len(m.GetKeyConstraints()))
	for _, key := range slices.Sorted(maps.Keys(m.GetKeyConstraints())) {
		at := root.Key(key)
		checkText(key, at, faults)
		drafts = append(drafts, readKey(key, m.GetKeyConstraints()[key], at, faults))
	}
	return drafts
}

func readKey(key string, m *discoveryv3.DynamicParameterConstraints_KeyConstraints, at *path, faults *Faults) KeyConstraints {
	draft := KeyConstraints{key: key, invert: m.GetInvert(), all: make([]Constraint, 0, len(m.GetConstraints()))}
	if len(m.GetConstraints()) == 0 {
		faults.Addf(at.Field("constraints"), noConstraint)
	}
	for i, c := range m.GetConstraints() {
		draft.all = append(draft.all, readConstraint(c, at.Item("constraints", i), faults))
	}
	return draft
}

type protoConstraint = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint

func readConstraint(m *protoConstraint, at *path, faults *Faults) Constraint {
	switch m.GetConstraint().(type) {
	case *discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_Value:
		checkText(m.GetValue(), at.Field("value"), faults)
		return Value(m.GetValue())
	case *discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_IntegerRangeList_:
		list, at := m.GetIntegerRangeList().GetRange(), at.Field("integer_range_list")
		if len(list) == 0 {
			faults.Addf(at.Field("range"), noRange)
		}
		ranges := make([]Range, 0, len(list))
		for i, r := range list {
			if r == nil {
				r = new(protoRange)
			}
			ranges = append(ranges, readRange(r.MinValue, r.MaxValue, at.Item("range", i), faults))
		}
		return Constraint{kind: inRanges, ranges: ranges}
	default:
		faults.Addf(at, noKind)
		return Constraint{}
	}
}

type protoRange = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_IntegerRangeList_Range

// readRange returns the range with the bounds, of which one may be missing.
func readRange(low, high *uint64, at *path, faults *Faults) Range {
	r, problem := rangeOf(low, high)
	if problem != "" {
		faults.Addf(at, "%s", problem)
	}
	return r
}

// rangeOf returns the range with the bounds, of which one may be missing, and what is
// wrong with it, or "".
func rangeOf(low, high *uint64) (r Range, problem string) {
	r = Range{Max: math.MaxUint64}
	if low == nil && high == nil {
		return r, noBound
	}
	if low != nil {
		r.Min = *low
	}
	if high != nil {
		r.Max = *high
	}
	return r, orderProblem(r)
}

// ToProto returns the constraints as a new message, in canonical form: lists in
// order, each range with a min_value, and with a max_value unless that is 2^64-1. It
// is not nil.
func (c Constraints) ToProto() *discoveryv3.DynamicParameterConstraints {
	m := new(discoveryv3.DynamicParameterConstraints)
	if c.IsZero() {
		return m
	}
	m.KeyConstraints = make(map[string]*discoveryv3.DynamicParameterConstraints_KeyConstraints, c.Len())
	for _, k := range c.keys() {
		key := &discoveryv3.DynamicParameterConstraints_KeyConstraints{Invert: k.invert}
		for _, constraint := range k.all {
			key.Constraints = append(key.Constraints, constraint.toProto())
		}
		m.KeyConstraints[k.key] = key
	}
	return m
}

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
