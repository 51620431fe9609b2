package dynparam

// Constraints choose among the variants of a resource: they say, for each of a set of keys,
// what the value of the dynamic parameter has to be. The zero value constrains nothing and
// matches every variant.
//
// Compare with Equal, or by Key: == may be false for equal ones.
type Constraints struct {
	set *set
}

// set is not empty, and in canonical form.
type set struct {
	keys []KeyConstraints // sorted by key, each once
	wire string
}

// KeyConstraints are the constraints on the value of one key; see [Require] and
// [Exclude].
type KeyConstraints struct {
	key string
	// all have to be satisfied, or, if inverted, not all.
	all    []Constraint
	invert bool
}

// Constraint is one demand on a value; see [Value] and [InRanges].
type Constraint struct {
	kind   kind
	value  string
	ranges []Range // sorted and disjoint, in canonical form
}

type kind int

const (
	exactly kind = iota
	inRanges
)

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

// Parameters returns the parameters that the constraints spell out, which name one variant
// of a resource: one exact value for each key. ok is false for any other constraints.
func (c Constraints) Parameters() (p Parameters, ok bool) {
	if c.IsZero() {
		return Parameters{}, true
	}
	list := make([]parameter, 0, len(c.keys()))
	for _, k := range c.keys() {
		if k.invert || len(k.all) != 1 || k.all[0].kind != exactly {
			return Parameters{}, false
		}
		number, integer := parseInteger(k.all[0].value)
		list = append(list, parameter{key: k.key, value: k.all[0].value, number: number, integer: integer})
	}
	return Parameters{&params{list: list, wire: parametersWire(list)}}, true
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
	for i := range c.keys() {
		k := &c.set.keys[i]
		var param *parameter
		if param, params = seek(params, k.key); param != nil && !k.match(param) {
			return false
		}
	}
	return true
}

// match reports whether the value satisfies the constraints on its key.
func (k *KeyConstraints) match(p *parameter) bool {
	for i := range k.all {
		if !k.all[i].match(p) {
			return k.invert
		}
	}
	return !k.invert
}

func (c *Constraint) match(p *parameter) bool {
	if c.kind == exactly {
		return c.value == p.value
	}
	return p.integer && contains(c.ranges, p.number)
}

// contains looks for the only range that can hold the number: the first that does not end
// before it.
func contains(ranges []Range, n uint64) bool {
	// Half the time of slices.BinarySearchFunc, which calls a function for each range.
	low, high := 0, len(ranges)
	for low < high {
		middle := int(uint(low+high) / 2)
		if ranges[middle].Max < n {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low < len(ranges) && ranges[low].Min <= n
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
	below, above := c.keys(), over.keys()
	merged := make([]KeyConstraints, 0, len(below)+len(above))
	for _, k := range below {
		for len(above) > 0 && above[0].key < k.key {
			merged, above = append(merged, above[0]), above[1:]
		}
		if len(above) == 0 || above[0].key != k.key {
			merged = append(merged, k)
		}
	}
	return seal(append(merged, above...))
}
