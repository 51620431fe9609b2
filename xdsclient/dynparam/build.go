package dynparam

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	whatConstraints = "dynamic parameter constraints"
	whatParameters  = "dynamic parameters"
)

// Value is the constraint that the value of the key is exactly this.
func Value(value string) Constraint { return Constraint{kind: exactly, value: value} }

// InRanges is the constraint that the value of the key is an integer from 0 to
// 2^64-1, written in decimal digits, and in one of the ranges. A value that is no
// such integer does not satisfy it.
func InRanges(ranges ...Range) Constraint {
	return Constraint{kind: inRanges, ranges: slices.Clone(ranges)}
}

// AtLeast is the range of integers that are not less than n.
func AtLeast(n uint64) Range { return Range{Min: n, Max: math.MaxUint64} }

// AtMost is the range of integers that are not greater than n.
func AtMost(n uint64) Range { return Range{Max: n} }

// Require constrains a key: if a resource has it, its value satisfies all of the
// constraints.
func Require(key string, all ...Constraint) KeyConstraints {
	return KeyConstraints{key: key, all: slices.Clone(all)}
}

// Exclude constrains a key: if a resource has it, its value does not satisfy all of
// the constraints (KeyConstraints.invert).
func Exclude(key string, all ...Constraint) KeyConstraints {
	return KeyConstraints{key: key, all: slices.Clone(all), invert: true}
}

// New returns the constraints on the keys. The error is a *[Faults], with the paths
// that the DynamicParameterConstraints message would have: a key that occurs twice
// or has no constraints, a list without ranges, a range whose bounds are the wrong
// way round, text that is not UTF-8, or more than the limits allow.
func New(keys ...KeyConstraints) (Constraints, error) {
	faults := Faults{Source: whatConstraints}
	root := (*path)(nil).Field("key_constraints")
	seen := make(map[string]bool, len(keys))
	drafts := make([]KeyConstraints, 0, len(keys))
	for i := range keys {
		at := root.Key(keys[i].key)
		if seen[keys[i].key] {
			faults.Addf(at, "expected the name once, found it again")
			continue
		}
		seen[keys[i].key] = true
		drafts = append(drafts, keys[i].check(at, &faults))
	}
	return result(drafts, &faults)
}

// Exact returns constraints that each key has exactly the value given. The errors
// are those of New.
func Exact(values map[string]string) (Constraints, error) {
	keys := make([]KeyConstraints, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		keys = append(keys, Require(key, Value(values[key])))
	}
	return New(keys...)
}

// check reports what is wrong with the constraints of a program, and returns a copy
// to be brought into canonical form.
func (k *KeyConstraints) check(at *path, faults *Faults) KeyConstraints {
	checkText(k.key, at, faults)
	if len(k.all) == 0 {
		faults.Addf(at.Field("constraints"), noConstraint)
	}
	checked := KeyConstraints{key: k.key, invert: k.invert, all: make([]Constraint, 0, len(k.all))}
	for i := range k.all {
		c, at := k.all[i], at.Item("constraints", i)
		switch c.kind {
		case exactly:
			checkText(c.value, at.Field("value"), faults)
		case inRanges:
			list := at.Field("integer_range_list")
			if len(c.ranges) == 0 {
				faults.Addf(list.Field("range"), noRange)
			}
			for j, r := range c.ranges {
				if problem := orderProblem(r); problem != "" {
					faults.Addf(list.Item("range", j), "%s", problem)
				}
			}
			c.ranges = slices.Clone(c.ranges)
		}
		checked.all = append(checked.all, c)
	}
	return checked
}

// What several faults say.
const (
	listOfConstraints = "a list with at least one constraint"
	noConstraint      = "expected " + listOfConstraints + ", found an empty list"
	listOfRanges      = "a list with at least one range"
	noRange           = "expected " + listOfRanges + ", found an empty list"
	noBound           = "expected min_value, max_value or both, found neither"
	noKind            = "expected value or integer_range_list, found neither"
)

func checkText(s string, at *path, faults *Faults) {
	if !utf8.ValidString(s) {
		faults.Addf(at, "expected UTF-8, found other bytes")
	}
}

// orderProblem says what is wrong with the order of the bounds, or returns "".
func orderProblem(r Range) string {
	if r.Min <= r.Max {
		return ""
	}
	return fmt.Sprintf("expected a min_value that is at most max_value, found %d and %d", r.Min, r.Max)
}

// finish makes Constraints of drafts, of which it takes possession. Their keys
// differ. at is the path of the message. If there are faults, the caller has no use
// for the result.
func finish(drafts []KeyConstraints, at *path, faults *Faults) Constraints {
	if len(drafts) > maxKeys {
		faults.Addf(at.Field("key_constraints"), "expected at most %d keys, found %d", maxKeys, len(drafts))
	}
	for i := range drafts {
		drafts[i].canonicalize()
	}
	slices.SortFunc(drafts, func(a, b KeyConstraints) int { return strings.Compare(a.key, b.key) })
	c := seal(drafts)
	if size := len(c.Key()); size > maxSize {
		faults.Addf(at, tooLarge, maxSize, size)
	}
	return c
}

// result is finish for a message of its own.
func result(drafts []KeyConstraints, faults *Faults) (Constraints, error) {
	c := finish(drafts, nil, faults)
	if err := faults.Err(); err != nil {
		return Constraints{}, err
	}
	return c, nil
}

const tooLarge = "expected at most %d bytes, found %d"

// seal makes Constraints of keys in canonical form.
func seal(keys []KeyConstraints) Constraints {
	if len(keys) == 0 {
		return Constraints{}
	}
	return Constraints{&set{keys: keys, wire: string(appendSet(nil, keys))}}
}

func (k *KeyConstraints) canonicalize() {
	for i := range k.all {
		k.all[i].ranges = join(k.all[i].ranges)
	}
	slices.SortFunc(k.all, Constraint.compare)
	k.all = slices.CompactFunc(k.all, func(a, b Constraint) bool { return a.compare(b) == 0 })
}

// compare puts constraints into an order that has no meaning of its own.
func (c Constraint) compare(other Constraint) int {
	return cmp.Or(
		cmp.Compare(c.kind, other.kind),
		strings.Compare(c.value, other.value),
		slices.CompareFunc(c.ranges, other.ranges, Range.compare),
	)
}

func (r Range) compare(other Range) int {
	return cmp.Or(cmp.Compare(r.Min, other.Min), cmp.Compare(r.Max, other.Max))
}

// join sorts the ranges in place and makes one of those that overlap or touch.
func join(ranges []Range) []Range {
	slices.SortFunc(ranges, Range.compare)
	joined := ranges[:0]
	for _, r := range ranges {
		if n := len(joined); n > 0 && (r.Min <= joined[n-1].Max || r.Min-1 == joined[n-1].Max) {
			joined[n-1].Max = max(joined[n-1].Max, r.Max)
			continue
		}
		joined = append(joined, r)
	}
	return joined
}
