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

// InRanges is the constraint that the value of the key is an integer from 0 to 2^64-1,
// written in decimal digits, and in one of the ranges. Any other value does not satisfy it.
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

// Exclude constrains a key: if a resource has it, its value does not satisfy all of the
// constraints (KeyConstraints.invert).
func Exclude(key string, all ...Constraint) KeyConstraints {
	return KeyConstraints{key: key, all: slices.Clone(all), invert: true}
}

// New returns the constraints on the keys. The error is a *[Faults] with the paths that the
// DynamicParameterConstraints message would have. Errors are: a key that occurs twice or has
// no constraints, a list without ranges, a range whose lower bound is above its upper one,
// text that is not UTF-8, and more than the limits allow.
func New(keys ...KeyConstraints) (Constraints, error) {
	faults := Faults{Source: whatConstraints}
	root := (*path)(nil).Field("key_constraints")
	seen := make(map[string]bool, len(keys))
	drafts := make([]KeyConstraints, 0, len(keys))
	for _, k := range keys {
		at := root.Key(k.key)
		if seen[k.key] {
			faults.Addf(at, "expected the name once, found it again")
			continue
		}
		seen[k.key] = true
		k.check(at, &faults)
		k.all = slices.Clone(k.all) // The program may use its constraints again.
		for i := range k.all {
			k.all[i].ranges = slices.Clone(k.all[i].ranges)
		}
		drafts = append(drafts, k)
	}
	return result(drafts, &faults)
}

// Exact returns constraints that each key has exactly the value given. The errors are those
// of New.
func Exact(values map[string]string) (Constraints, error) {
	keys := make([]KeyConstraints, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		keys = append(keys, Require(key, Value(values[key])))
	}
	return New(keys...)
}

// check reports what is wrong with the constraints on a key.
func (k KeyConstraints) check(at *path, faults *Faults) {
	checkText(k.key, at, faults)
	if len(k.all) == 0 {
		faults.Addf(at.Field("constraints"), "expected %s, found an empty list", listOfConstraints)
	}
	for i, c := range k.all {
		at := at.Item("constraints", i)
		if c.kind == exactly {
			checkText(c.value, at.Field("value"), faults)
			continue
		}
		at = at.Field("integer_range_list")
		if len(c.ranges) == 0 {
			faults.Addf(at.Field("range"), "expected %s, found an empty list", listOfRanges)
		}
		for j, r := range c.ranges {
			if r.Min > r.Max {
				faults.Addf(at.Item("range", j), "%s", r.misordered())
			}
		}
	}
}

// Parts of errors that several readers report.
const (
	listOfConstraints = "a list with at least one constraint"
	listOfRanges      = "a list with at least one range"
	noBound           = "expected min_value, max_value or both, found neither"
	noKind            = "expected value or integer_range_list, found neither"
	tooLarge          = "expected at most %d bytes, found %d"
)

func (r Range) misordered() string {
	return fmt.Sprintf("expected a min_value that is at most max_value, found %d and %d", r.Min, r.Max)
}

func checkText(s string, at *path, faults *Faults) {
	if !utf8.ValidString(s) {
		faults.Addf(at, "expected UTF-8, found other bytes")
	}
}

// finish makes Constraints of drafts with different keys, a list that it keeps. at is the path
// of the message. The result is of use only if there are no errors.
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

// result is finish for a message that is not part of another.
func result(drafts []KeyConstraints, faults *Faults) (Constraints, error) {
	c := finish(drafts, nil, faults)
	if err := faults.Err(); err != nil {
		return Constraints{}, err
	}
	return c, nil
}

// seal makes Constraints of keys in canonical form.
func seal(keys []KeyConstraints) Constraints {
	if len(keys) == 0 {
		return Constraints{}
	}
	c := Constraints{&set{keys: keys}}
	c.set.wire = c.wireForm()
	return c
}

func (k *KeyConstraints) canonicalize() {
	for i := range k.all {
		k.all[i].ranges = join(k.all[i].ranges)
	}
	slices.SortFunc(k.all, Constraint.compare)
	k.all = slices.CompactFunc(k.all, func(a, b Constraint) bool { return a.compare(b) == 0 })
}

// compare is an arbitrary order of constraints.
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

// join sorts the ranges in place, and joins those that overlap or touch.
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
