package dynparam

import (
	"maps"
	"slices"
	"sort"

	"google.golang.org/protobuf/proto"

	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// Constraints choose among the variants of a resource: they say, for each of a set of keys,
// what the value of the dynamic parameter has to be. The zero value constrains nothing and
// matches every variant.
//
// Compare with Equal, or by Key: == may be false for equal ones.
type Constraints struct {
	set *set
}

// set is not empty.
type set struct {
	keys []KeyConstraints // sorted by key, each once, and in canonical form
	wire string
}

// KeyConstraints are the constraints on the value of one key; see [Require] and
// [Exclude].
type KeyConstraints struct {
	key string
	// message is not changed. In canonical form its constraints are sorted, each once, and ranges are sorted and disjoint, have a
	// min_value, and have a max_value unless that is 2^64-1.
	message *protoKey
}

// Constraint is one demand on a value; see [Value] and [InRanges].
type Constraint struct{ message *protoConstraint }

// Range is a range of integers that includes both bounds.
type Range struct {
	Min, Max uint64
}

// keys returns the constraints in order.
func (c Constraints) keys() []KeyConstraints {
	if c.set == nil {
		return nil
	}
	return c.set.keys
}

// IsZero reports whether nothing is constrained.
func (c Constraints) IsZero() bool { return c.set == nil }

// Key returns a string that equal constraints have, and no others. It is empty for the zero
// value, and costs nothing.
//
// The string is the serialized DynamicParameterConstraints message, which may be appended
// to the tag and the length of ResourceLocator.dynamic_parameter_constraints. For people
// there is String.
func (c Constraints) Key() string {
	if c.set == nil {
		return ""
	}
	return c.set.wire
}

// ToProto returns the constraints as a new message, which is never nil, in canonical form.
func (c Constraints) ToProto() *discoveryv3.DynamicParameterConstraints {
	return proto.CloneOf(&protoConstraints{KeyConstraints: c.messages()})
}

// messages returns the constraints by key in a new map.
func (c Constraints) messages() map[string]*protoKey {
	all := make(map[string]*protoKey, len(c.keys()))
	for _, k := range c.keys() {
		all[k.key] = k.message
	}
	return all
}

// Parameters returns the parameters that the constraints spell out, which name one variant
// of a resource: one exact value for each key. ok is false for any other constraints.
func (c Constraints) Parameters() (p Parameters, ok bool) {
	values := make(map[string]string, len(c.keys()))
	for _, k := range c.keys() {
		if len(k.message.GetConstraints()) != 1 || !k.matchesOne() {
			return Parameters{}, false
		}
		values[k.key] = k.message.GetConstraints()[0].GetValue()
	}
	p, err := NewParameters(values)
	return p, err == nil
}

// Equal reports whether both are the same constraints, however they were made.
func (c Constraints) Equal(other Constraints) bool {
	return c.set == other.set || c.Key() == other.Key()
}

// Match reports whether the constraints accept the variant with these parameters: for each
// constrained key, the variant does not have the key, or its value satisfies all constraints
// on it (with invert: not all of them). Keys without constraints do not count. It does not
// allocate.
func (c Constraints) Match(p Parameters) bool {
	params := p.list()
	for _, k := range c.keys() {
		var value *parameter
		if value, params = seek(params, k.key); value != nil && !k.match(value) {
			return false
		}
	}
	return true
}

// match reports whether the value satisfies the constraints on its key.
func (k KeyConstraints) match(p *parameter) bool {
	for _, c := range k.message.GetConstraints() {
		if !satisfies(p, c) {
			return k.message.GetInvert()
		}
	}
	return !k.message.GetInvert()
}

func satisfies(p *parameter, c *protoConstraint) bool {
	exact, isExact := c.GetConstraint().(*protoValue)
	if isExact {
		return p.value == exact.Value
	}
	ranges := c.GetIntegerRangeList().GetRange()
	i := sort.Search(len(ranges), func(i int) bool { return upper(ranges[i]) >= p.number }) // the only one that can hold the number
	return p.integer && i < len(ranges) && ranges[i].GetMinValue() <= p.number
}

// matchesOne reports whether one value at most satisfies the constraints.
func (k KeyConstraints) matchesOne() bool {
	return !k.message.GetInvert() && slices.ContainsFunc(k.message.GetConstraints(), func(c *protoConstraint) bool {
		_, exact := c.GetConstraint().(*protoValue)
		return exact
	})
}

// Merge returns the constraints of both. Where both constrain a key, over wins. The
// limits of the package hold for each of the two, not for the result.
func (c Constraints) Merge(over Constraints) Constraints {
	if over.IsZero() || c.Equal(over) {
		return c
	}
	if c.IsZero() {
		return over
	}
	merged := c.messages()
	maps.Copy(merged, over.messages())
	return seal(merged)
}
