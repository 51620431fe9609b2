package dynparam

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/jsonpath"
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
	var faults collector
	drafts := readConstraints(m, nil, &faults)
	return result(drafts, &faults)
}

// Unmarshal is FromProto for a serialized message. The error is a *[Faults], or says
// that the bytes are no such message.
func Unmarshal(b []byte) (Constraints, error) {
	if len(b) > MaxSize {
		var faults collector
		faults.add(nil, tooLarge, MaxSize, len(b))
		return Constraints{}, faults.err(whatConstraints)
	}
	var m discoveryv3.DynamicParameterConstraints
	if err := proto.Unmarshal(b, &m); err != nil {
		return Constraints{}, fmt.Errorf("%s: %w", whatConstraints, err)
	}
	return FromProto(&m)
}

// readConstraints returns drafts of the constraints in the message at the path. It
// stops early at a message that is too large to be read to its end.
func readConstraints(m *discoveryv3.DynamicParameterConstraints, at *path, faults *collector) []KeyConstraints {
	if size := proto.Size(m); size > MaxSize {
		faults.add(at, tooLarge, MaxSize, size)
		return nil
	}
	root := at.field("key_constraints")
	drafts := make([]KeyConstraints, 0, len(m.GetKeyConstraints()))
	for _, key := range slices.Sorted(maps.Keys(m.GetKeyConstraints())) {
		at := root.entry(key)
		checkText(key, at, faults)
		drafts = append(drafts, readKey(key, m.GetKeyConstraints()[key], at, faults))
	}
	return drafts
}

func readKey(key string, m *discoveryv3.DynamicParameterConstraints_KeyConstraints, at *path, faults *collector) KeyConstraints {
	draft := KeyConstraints{key: key, invert: m.GetInvert(), all: make([]Constraint, 0, len(m.GetConstraints()))}
	list := at.field("constraints")
	if len(m.GetConstraints()) == 0 {
		faults.add(list, noConstraint)
	}
	for i, c := range m.GetConstraints() {
		draft.all = append(draft.all, readConstraint(c, list.element(i), faults))
	}
	return draft
}

type protoConstraint = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint

func readConstraint(m *protoConstraint, at *path, faults *collector) Constraint {
	switch m.GetConstraint().(type) {
	case *discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_Value:
		checkText(m.GetValue(), at.field("value"), faults)
		return Value(m.GetValue())
	case *discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_IntegerRangeList_:
		list, at := m.GetIntegerRangeList().GetRange(), at.field("integer_range_list").field("range")
		if len(list) == 0 {
			faults.add(at, noRange)
		}
		ranges := make([]Range, 0, len(list))
		for i, r := range list {
			if r == nil {
				r = new(protoRange)
			}
			ranges = append(ranges, readRange(r.MinValue, r.MaxValue, at.element(i), faults))
		}
		return Constraint{kind: inRanges, ranges: ranges}
	default:
		faults.add(at, noKind)
		return Constraint{}
	}
}

type protoRange = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_IntegerRangeList_Range

// readRange returns the range with the bounds, of which one may be missing.
func readRange(low, high *uint64, at *path, faults *collector) Range {
	r, problem := rangeOf(low, high)
	if problem != "" {
		faults.add(at, "%s", problem)
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

// FromNodeMetadata translates entries of a node's metadata (Node.metadata) to
// exact-match constraints (TP2, "Migrating From Node Metadata"). A key that the
// metadata does not have constrains nothing. The error is a *[Faults]: an entry whose
// value is not a string, with a path such as `metadata["env"]`, or what New refuses.
func FromNodeMetadata(metadata *structpb.Struct, keys []string) (Constraints, error) {
	var faults collector
	root := (*path)(nil).field("metadata")
	values := make(map[string]string, len(keys))
	for _, key := range keys {
		entry, ok := metadata.GetFields()[key]
		if !ok {
			continue
		}
		text, ok := entry.GetKind().(*structpb.Value_StringValue)
		if !ok {
			faults.add(root.entry(key), "expected a string, found %s", kindOf(entry))
			continue
		}
		values[key] = text.StringValue
	}
	if err := faults.err(whatConstraints); err != nil {
		return Constraints{}, err
	}
	return Exact(values)
}

func kindOf(v *structpb.Value) string {
	switch v.GetKind().(type) {
	case *structpb.Value_NumberValue:
		return jsonpath.Number
	case *structpb.Value_BoolValue:
		return jsonpath.Boolean
	case *structpb.Value_StructValue:
		return jsonpath.Map
	case *structpb.Value_ListValue:
		return jsonpath.List
	default:
		return jsonpath.Null
	}
}
