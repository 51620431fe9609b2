package wire

import (
	"fmt"
	"iter"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/internal/protofield"
)

// layout has the numbers of the fields that make up a response. removed and removedLocators
// are 0 if the message has no such field.
type layout struct {
	message                                  string
	version, resources, typeURL, nonce       protowire.Number
	removed, removedLocators, resourceErrors protowire.Number
}

// read reads the envelope of a response. resource reads one of its resources.
func (l *layout) read(message []byte, resource func(index int, b []byte, typeURL string) Resource) (*Response, error) {
	r := &Response{beforeNonce: message}
	var seen uint64 // has a bit for each of the fields that are there
	for b := message; len(b) > 0; {
		f, rest, err := protofield.Next(b)
		if err != nil {
			return nil, fmt.Errorf("malformed %s: %w", l.message, err)
		}
		start := b
		b = rest
		if f.Kind != protowire.BytesType {
			continue
		}
		seen |= 1 << f.Number
		var text *string
		switch f.Number {
		case l.version:
			text = &r.Version
		case l.typeURL:
			text = &r.TypeURL
		case l.nonce:
			text = &r.Nonce
			r.beforeNonce, r.afterNonce = message[:len(message)-len(start)], rest
		default:
			continue
		}
		if !utf8.Valid(f.Value) {
			return nil, fmt.Errorf("malformed %s: not valid UTF-8", l.message)
		}
		*text = string(f.Value)
	}
	if r.TypeURL == "" {
		return nil, fmt.Errorf("malformed %s: type_url is empty", l.message)
	}
	// Where a field is not there, the message is not searched for it.
	with := func(number protowire.Number) []byte {
		if seen&(1<<number) == 0 {
			return nil
		}
		return message
	}
	r.Resources = occurrences(message, l.resources, func(index int, b []byte) Resource { return resource(index, b, r.TypeURL) })
	r.Errors = occurrences(with(l.resourceErrors), l.resourceErrors, readError)
	r.Removed = occurrences(with(l.removed), l.removed, func(_ int, b []byte) ResourceName { return ResourceName{Name: b} })
	r.RemovedLocators = occurrences(with(l.removedLocators), l.removedLocators, readLocator)
	return r, nil
}

// occurrences iterates what read makes of the occurrences of a length-delimited field in a message that is
// well-formed. They are read again instead of listed, because a hostile message can hold
// tens of millions of empty ones.
func occurrences[T any](message []byte, number protowire.Number, read func(index int, b []byte) T) iter.Seq[T] {
	return func(yield func(T) bool) {
		index := 0
		for b := message; len(b) > 0; {
			f, rest, err := protofield.Next(b)
			if err != nil {
				return
			}
			b = rest
			if f.Number != number || f.Kind != protowire.BytesType {
				continue
			}
			if !yield(read(index, f.Value)) {
				return
			}
			index++
		}
	}
}
