package dynparam

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

const (
	whatConstraints = "dynamic parameter constraints"
	whatParameters  = "dynamic parameters"
)

// Messages of TP2, and their parts.
type (
	protoConstraints = discoveryv3.DynamicParameterConstraints
	protoKey         = discoveryv3.DynamicParameterConstraints_KeyConstraints
	protoConstraint  = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint
	protoValue       = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_Value
	protoRanges      = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_IntegerRangeList_
	protoList        = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_IntegerRangeList
	protoRange       = discoveryv3.DynamicParameterConstraints_KeyConstraints_Constraint_IntegerRangeList_Range
)

// Value is the constraint that the value of the key is exactly this.
func Value(value string) Constraint {
	return Constraint{&protoConstraint{Constraint: &protoValue{Value: value}}}
}

// InRanges is the constraint that the value of the key is an integer from 0 to 2^64-1,
// written in decimal digits, and in one of the ranges. Any other value does not satisfy it.
func InRanges(ranges ...Range) Constraint {
	list := new(protoList)
	for _, r := range ranges {
		message := &protoRange{MinValue: &r.Min}
		if r.Max != math.MaxUint64 {
			message.MaxValue = &r.Max
		}
		list.Range = append(list.Range, message)
	}
	return Constraint{&protoConstraint{Constraint: &protoRanges{IntegerRangeList: list}}}
}

// AtLeast is the range of integers that are not less than n.
func AtLeast(n uint64) Range { return Range{Min: n, Max: math.MaxUint64} }

// AtMost is the range of integers that are not greater than n.
func AtMost(n uint64) Range { return Range{Max: n} }

// Require constrains a key: if a resource has it, its value satisfies all of the
// constraints.
func Require(key string, all ...Constraint) KeyConstraints {
	message := new(protoKey)
	for _, c := range all {
		message.Constraints = append(message.Constraints, c.message)
	}
	return KeyConstraints{key, message}
}

// Exclude constrains a key: if a resource has it, its value does not satisfy all of the
// constraints (KeyConstraints.invert).
func Exclude(key string, all ...Constraint) KeyConstraints {
	k := Require(key, all...)
	k.message.Invert = true
	return k
}

// New returns the constraints on the keys. The error is a *[Faults] with the paths that the
// DynamicParameterConstraints message would have. Errors are: a key that occurs twice, and those of FromProto.
func New(keys ...KeyConstraints) (Constraints, error) {
	faults := Faults{Source: whatConstraints}
	m := &protoConstraints{KeyConstraints: make(map[string]*protoKey, len(keys))}
	for _, k := range keys {
		if _, twice := m.KeyConstraints[k.key]; twice {
			faults.Addf((*path)(nil).Field("key_constraints").Key(k.key), "expected the name once, found it again")
		}
		m.KeyConstraints[k.key] = k.message
	}
	return result(m, &faults)
}

// Exact returns constraints that each key has exactly the value given. The errors are those
// of New.
func Exact(values map[string]string) (Constraints, error) {
	keys := make([]KeyConstraints, 0, len(values))
	for key, value := range values {
		keys = append(keys, Require(key, Value(value)))
	}
	return New(keys...)
}

// FromProto returns the constraints of a message, which it does not keep. nil is a message
// without constraints. The error is a *[Faults]: a key without constraints, a constraint that is
// neither a value nor a list of ranges, a list without ranges, a range without bounds or whose lower bound is above its
// upper one, text that is not UTF-8, and more than the limits allow. Unknown fields are ignored.
func FromProto(m *discoveryv3.DynamicParameterConstraints) (Constraints, error) {
	return result(m, &Faults{Source: whatConstraints})
}

// result is read for a message that is not part of another.
func result(m *protoConstraints, faults *Faults) (Constraints, error) {
	c := read(m, nil, faults)
	if err := faults.Err(); err != nil {
		return Constraints{}, err
	}
	return c, nil
}

// read returns the constraints in the message at the path, which it does not keep. They are of use only if there are no
// errors. A message that is too large is not read.
func read(m *protoConstraints, at *path, faults *Faults) Constraints {
	if size := proto.Size(m); size > maxSize {
		faults.Addf(at, tooLarge, maxSize, size)
		return Constraints{}
	}
	root, n := at.Field("key_constraints"), len(m.GetKeyConstraints())
	if n > maxKeys {
		faults.Addf(root, "expected at most %d keys, found %d", maxKeys, n)
	}
	keys := make(map[string]*protoKey, n)
	for _, key := range slices.Sorted(maps.Keys(m.GetKeyConstraints())) {
		at := root.Key(key)
		checkText(key, at, faults)
		keys[key] = canonicalKey(m.GetKeyConstraints()[key], at, faults)
	}
	c := seal(keys)
	if size := len(c.Key()); size > maxSize {
		faults.Addf(at, tooLarge, maxSize, size)
	}
	return c
}

// canonicalKey returns the canonical form of the constraints on a key.
func canonicalKey(m *protoKey, at *path, faults *Faults) *protoKey {
	if len(m.GetConstraints()) == 0 {
		faults.Addf(at.Field("constraints"), "expected %s, found an empty list", listOfConstraints)
	}
	all := make([]*protoConstraint, len(m.GetConstraints()))
	for i, c := range m.GetConstraints() {
		all[i] = canonicalConstraint(c, at.Item("constraints", i), faults).message
	}
	slices.SortFunc(all, compareConstraints)
	all = slices.CompactFunc(all, func(a, b *protoConstraint) bool { return compareConstraints(a, b) == 0 })
	return &protoKey{Constraints: all, Invert: m.GetInvert()}
}

func canonicalConstraint(m *protoConstraint, at *path, faults *Faults) Constraint {
	switch m.GetConstraint().(type) {
	case *protoValue:
		checkText(m.GetValue(), at.Field("value"), faults)
		return Value(m.GetValue())
	case *protoRanges:
		at = at.Field("integer_range_list")
		list := m.GetIntegerRangeList().GetRange()
		if len(list) == 0 {
			faults.Addf(at.Field("range"), "expected %s, found an empty list", listOfRanges)
		}
		ranges := make([]Range, len(list))
		for i, r := range list {
			if wrong := wrongWith(r); wrong != "" {
				faults.Addf(at.Item("range", i), "%s", wrong)
			}
			ranges[i] = Range{r.GetMinValue(), upper(r)}
		}
		return InRanges(joined(ranges)...)
	default:
		faults.Addf(at, noKind)
		return Constraint{}
	}
}

// Parts of errors that several readers report.
const (
	listOfConstraints = "a list with at least one constraint"
	listOfRanges      = "a list with at least one range"
	noKind            = "expected value or integer_range_list, found neither"
	tooLarge          = "expected at most %d bytes, found %d"
)

// wrongWith returns what is wrong with a range, or "".
func wrongWith(r *protoRange) string {
	switch {
	case r == nil || r.MinValue == nil && r.MaxValue == nil:
		return "expected min_value, max_value or both, found neither"
	case r.GetMinValue() > upper(r):
		return fmt.Sprintf("expected a min_value that is at most max_value, found %d and %d", r.GetMinValue(), r.GetMaxValue())
	default:
		return ""
	}
}

// upper returns the upper bound of a range, which may be missing.
func upper(r *protoRange) uint64 {
	if r == nil || r.MaxValue == nil {
		return math.MaxUint64
	}
	return *r.MaxValue
}

func checkText(s string, at *path, faults *Faults) {
	if !utf8.ValidString(s) {
		faults.Addf(at, "expected UTF-8, found other bytes")
	}
}

// seal makes Constraints of messages in canonical form, which it keeps. They are of no use if there is text that is not UTF-8.
func seal(keys map[string]*protoKey) Constraints {
	if len(keys) == 0 {
		return Constraints{}
	}
	wire, _ := proto.MarshalOptions{Deterministic: true}.Marshal(&protoConstraints{KeyConstraints: keys})
	c := Constraints{&set{wire: string(wire), keys: make([]KeyConstraints, 0, len(keys))}}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		c.set.keys = append(c.set.keys, KeyConstraints{key, keys[key]})
	}
	return c
}

// compareConstraints is an arbitrary order of constraints.
func compareConstraints(a, b *protoConstraint) int {
	return cmp.Or(
		slices.CompareFunc(a.GetIntegerRangeList().GetRange(), b.GetIntegerRangeList().GetRange(), func(a, b *protoRange) int {
			return cmp.Or(cmp.Compare(a.GetMinValue(), b.GetMinValue()), cmp.Compare(upper(a), upper(b)))
		}),
		strings.Compare(a.GetValue(), b.GetValue()),
	)
}

// joined sorts the ranges in place, and joins those that overlap or touch.
func joined(ranges []Range) []Range {
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Compare(a.Min, b.Min) })
	all := ranges[:0]
	for _, r := range ranges {
		if n := len(all); n > 0 && (r.Min <= all[n-1].Max || r.Min-1 == all[n-1].Max) {
			all[n-1].Max = max(all[n-1].Max, r.Max)
			continue
		}
		all = append(all, r)
	}
	return all
}
