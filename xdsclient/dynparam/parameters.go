package dynparam

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Parameters are values by key that distinguish the variants of a resource
// (Resource.dynamic_parameters). The zero value has no keys: it belongs to a resource
// without variants, and matches all constraints.
//
// Compare with Equal, or by Key: == may be false for equal ones.
type Parameters struct {
	params *params
}

// params is not empty.
type params struct {
	list []parameter // by key, each once
	wire string
}

type parameter struct {
	key, value string
	// number is the value if it is an integer.
	number  uint64
	integer bool
}

// NewParameters returns parameters with the values by key. The error is a *[Faults] with
// paths such as `dynamic_parameters["env"]`: text that is not UTF-8, or more than the limits
// allow.
func NewParameters(values map[string]string) (Parameters, error) {
	faults := Faults{Source: whatParameters}
	root := (*path)(nil).Field("dynamic_parameters")
	if len(values) > maxKeys {
		faults.Addf(root, "expected at most %d keys, found %d", maxKeys, len(values))
		return Parameters{}, faults.Err()
	}
	list := make([]parameter, 0, len(values))
	for key, value := range values {
		number, integer := parseInteger(value)
		list = append(list, parameter{key: key, value: value, number: number, integer: integer})
	}
	slices.SortFunc(list, func(a, b parameter) int { return strings.Compare(a.key, b.key) })
	for _, p := range list {
		if !utf8.ValidString(p.key) || !utf8.ValidString(p.value) {
			checkText(p.key, root.Key(p.key), &faults)
			checkText(p.value, root.Key(p.key), &faults)
		}
	}
	wire := parametersWire(list)
	if len(wire) > maxSize {
		faults.Addf(root, tooLarge, maxSize, len(wire))
	}
	if err := faults.Err(); err != nil || len(list) == 0 {
		return Parameters{}, err
	}
	return Parameters{&params{list: list, wire: wire}}, nil
}

// parametersWire returns the field Resource.dynamic_parameters.
func parametersWire(list []parameter) string {
	b := make([]byte, 0, 64*len(list))
	for i := range list {
		p := &list[i]
		size := 2 + protowire.SizeBytes(len(p.key)) + protowire.SizeBytes(len(p.value)) // 2: the tags
		b = protowire.AppendVarint(protowire.AppendTag(b, 8, protowire.BytesType), uint64(size))
		b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), p.key)
		b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), p.value)
	}
	return string(b)
}

// parseInteger reads an integer from 0 to 2^64-1 in decimal digits.
func parseInteger(s string) (n uint64, ok bool) {
	if s == "" || s[0] < '0' || s[0] > '9' { // most other text, without the cost of an error
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, false // n may be the largest integer
	}
	return n, true
}

// list returns the parameters in order.
func (p Parameters) list() []parameter {
	if p.params == nil {
		return nil
	}
	return p.params.list
}

// seek returns the parameter with the key, or nil, and what follows it.
func seek(list []parameter, key string) (found *parameter, rest []parameter) {
	for i := range list {
		switch order := strings.Compare(list[i].key, key); {
		case order == 0:
			return &list[i], list[i+1:]
		case order > 0:
			return nil, list[i:]
		}
	}
	return nil, nil
}

// IsZero reports whether there are no parameters.
func (p Parameters) IsZero() bool { return p.params == nil }

// Get returns the value of a key.
func (p Parameters) Get(key string) (value string, ok bool) {
	if found, _ := seek(p.list(), key); found != nil {
		return found.value, true
	}
	return "", false
}

// Map returns the values by key in a map of the caller's own, as messages have it.
// It is nil if there are none.
func (p Parameters) Map() map[string]string {
	if p.IsZero() {
		return nil
	}
	values := make(map[string]string, len(p.list()))
	for _, param := range p.list() {
		values[param.key] = param.value
	}
	return values
}

// Key returns a string that equal parameters have, and no others. It is empty for the zero
// value, and costs nothing.
//
// The string is the field Resource.dynamic_parameters in serialized form, which may be
// appended to the rest of a serialized Resource. For people there is String.
func (p Parameters) Key() string {
	if p.params == nil {
		return ""
	}
	return p.params.wire
}

// Equal reports whether both have the same keys with the same values.
func (p Parameters) Equal(other Parameters) bool {
	return p.params == other.params || p.Key() == other.Key()
}
