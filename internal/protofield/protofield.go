// Package protofield reads a protobuf message on the wire field by field, without
// copying or decoding their values. It is for messages with few fields that matter, or few
// that have changed: a response is compared with the cache before any of it is decoded.
//
// It is not a decoder: it knows no message, does not look into fields, and does not
// merge fields that occur more than once.
package protofield

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field is one field of a message.
type Field struct {
	Number protowire.Number
	Kind   protowire.Type
	// Value is set for length-delimited fields, and is part of the message. Varint is
	// set for varints.
	Value  []byte
	Varint uint64
}

// Next splits a message, which is not empty, into its first field and the rest. The
// error says that the message is malformed.
func Next(b []byte) (f Field, rest []byte, err error) {
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 {
		return Field{}, nil, protowire.ParseError(n)
	}
	f = Field{Number: number, Kind: kind}
	b = b[n:]
	switch kind {
	case protowire.BytesType:
		f.Value, n = protowire.ConsumeBytes(b)
	case protowire.VarintType:
		f.Varint, n = protowire.ConsumeVarint(b)
	default:
		n = protowire.ConsumeFieldValue(number, kind, b)
	}
	if n < 0 {
		return Field{}, nil, protowire.ParseError(n)
	}
	return f, b[n:], nil
}

// Each calls f with the fields of a message of the given name, which is for the error of a malformed one. It ends
// with the first error of f.
func Each(b []byte, message string, f func(Field) error) error {
	for len(b) > 0 {
		field, rest, err := Next(b)
		if err != nil {
			return fmt.Errorf("malformed %s: %w", message, err)
		}
		if err := f(field); err != nil {
			return err
		}
		b = rest
	}
	return nil
}

// Deeper reports whether a message has messages within each other on more than some levels. Of a
// message without any it is false for 0. As bytes do not say whether they are a message, a text or
// something else, the answer may be too deep by a level or two. The cost is linear in the fields.
func Deeper(b []byte, levels int) bool {
	for len(b) > 0 {
		f, rest, err := Next(b)
		if err != nil {
			return false
		}
		if levels < 0 || f.Kind == protowire.BytesType && Deeper(f.Value, levels-1) {
			return true
		}
		b = rest
	}
	return false
}
