package testutils

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// Which variants a subscription gets is written here once more, and not taken from package dynparam, which
// the client asks: so a client that is wrong about it does not agree with its server.

// matches reports whether constraints accept a variant: each key that is constrained and that the variant
// has must have a value that satisfies the constraints (TP2, "API Changes").
func matches(c *discoverypb.DynamicParameterConstraints, parameters map[string]string) bool {
	for key, constrained := range c.GetKeyConstraints() {
		value, has := parameters[key]
		fails := func(c *constraint) bool { return !satisfies(value, c) }
		if has && slices.ContainsFunc(constrained.GetConstraints(), fails) != constrained.GetInvert() {
			return false
		}
	}
	return true
}

type constraint = discoverypb.DynamicParameterConstraints_KeyConstraints_Constraint

func satisfies(value string, c *constraint) bool {
	list := c.GetIntegerRangeList()
	if list == nil {
		return value == c.GetValue()
	}
	for _, r := range list.GetRange() {
		n, err := strconv.ParseUint(value, 10, 64)
		if err == nil && r.GetMinValue() <= n && (r.MaxValue == nil || n <= r.GetMaxValue()) {
			return true
		}
	}
	return false
}

// choose returns the variant, or the error in its place, that a subscription to a single resource gets; nil
// if none matches.
func (all variants) choose(c *discoverypb.DynamicParameterConstraints) *variant {
	if whole := all[wholeName]; whole != nil {
		return whole
	}
	var chosen *variant
	for _, v := range all {
		if matches(c, v.parameters) && (chosen == nil || compare(c, v.parameters, chosen.parameters) > 0) {
			chosen = v
		}
	}
	return chosen
}

// compare returns a positive number if variant a is preferred to variant b, both of which match.
//
// TP2 prefers the largest value where several match. What it leaves open is decided always alike: by the
// first key in which the variants differ, of those whose constraints several values satisfy, then of the
// other constrained keys, and at last of the keys that are not constrained, where smaller values and no
// value win, as a client that does not know a key more likely wants what is older.
func compare(c *discoverypb.DynamicParameterConstraints, a, b map[string]string) int {
	constrained := slices.Sorted(maps.Keys(c.GetKeyConstraints()))
	for _, several := range []bool{true, false} {
		for _, key := range constrained {
			if severalSatisfy(c.GetKeyConstraints()[key]) != several {
				continue
			}
			if order := compareValues(a, b, key); order != 0 {
				return order
			}
		}
	}
	keys := map[string]string{}
	maps.Copy(keys, a)
	maps.Copy(keys, b)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if order := compareValues(b, a, key); order != 0 {
			return order
		}
	}
	return 0
}

// severalSatisfy reports whether more than one value may satisfy the constraints on a key.
func severalSatisfy(k *discoverypb.DynamicParameterConstraints_KeyConstraints) bool {
	return k.GetInvert() || !slices.ContainsFunc(k.GetConstraints(), func(c *constraint) bool { return c.GetIntegerRangeList() == nil })
}

// compareValues orders the values of a key: none, text, integers.
func compareValues(a, b map[string]string, key string) int {
	rankA, numberA := rank(a, key)
	rankB, numberB := rank(b, key)
	return cmp.Or(cmp.Compare(rankA, rankB), cmp.Compare(numberA, numberB), cmp.Compare(a[key], b[key]))
}

func rank(parameters map[string]string, key string) (rank int, number uint64) {
	value, has := parameters[key]
	if !has {
		return 0, 0
	}
	number, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return 1, 0
	}
	return 2, number
}
