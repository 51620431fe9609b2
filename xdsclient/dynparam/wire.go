package dynparam

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// The canonical form is serialized here, as proto.Marshal does not promise that its output
// stays the same. Field numbers are those of dynxds/discovery/v3/dynamic_parameters.proto.

func appendSet(b []byte, keys []KeyConstraints) []byte {
	for i := range keys {
		var entry []byte
		entry = appendText(entry, 1, keys[i].key)
		entry = appendBytes(entry, 2, appendKeyConstraints(nil, &keys[i]))
		b = appendBytes(b, 1, entry)
	}
	return b
}

func appendKeyConstraints(b []byte, k *KeyConstraints) []byte {
	for i := range k.all {
		b = appendBytes(b, 2, appendConstraint(nil, &k.all[i]))
	}
	if k.invert {
		b = appendNumber(b, 3, 1)
	}
	return b
}

func appendConstraint(b []byte, c *Constraint) []byte {
	if c.kind == exactly {
		return appendText(b, 1, c.value)
	}
	var list []byte
	for _, r := range c.ranges {
		list = appendBytes(list, 1, appendRange(nil, r))
	}
	return appendBytes(b, 2, list)
}

func appendRange(b []byte, r Range) []byte {
	b = appendNumber(b, 1, r.Min)
	if r.bounded() {
		b = appendNumber(b, 2, r.Max)
	}
	return b
}

// bounded reports whether the canonical form of the range has a max_value. It always has a
// min_value.
func (r Range) bounded() bool { return r.Max != math.MaxUint64 }

// parametersWire returns the field Resource.dynamic_parameters.
func parametersWire(list []parameter) string {
	b := make([]byte, 0, 64*len(list))
	for i := range list {
		p := &list[i]
		size := 2 + protowire.SizeBytes(len(p.key)) + protowire.SizeBytes(len(p.value)) // 2: the tags
		b = protowire.AppendVarint(protowire.AppendTag(b, 8, protowire.BytesType), uint64(size))
		b = appendText(appendText(b, 1, p.key), 2, p.value)
	}
	return string(b)
}

func appendText(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}
