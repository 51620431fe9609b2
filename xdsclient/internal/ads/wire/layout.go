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
	r := &Response{Errors: none[ResourceError], Removed: none[ResourceName], RemovedLocators: none[ResourceName], beforeNonce: message}
	hasErrors, hasRemoved, hasRemovedLocators := false, false, false
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
		var text *string
		switch f.Number {
		case l.version:
			text = &r.Version
		case l.typeURL:
			text = &r.TypeURL
		case l.nonce:
			text = &r.Nonce
			r.beforeNonce, r.afterNonce = message[:len(message)-len(start)], rest
		case l.resourceErrors:
			hasErrors = true
		case l.removed:
			hasRemoved = true
		case l.removedLocators:
			hasRemovedLocators = true
		}
		if text == nil {
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
	if hasErrors {
		r.Errors = readErrors(message, l.resourceErrors)
	}
	if hasRemoved {
		r.Removed = readNames(message, l.removed)
	}
	if hasRemovedLocators {
		r.RemovedLocators = readLocators(message, l.removedLocators)
	}
	r.Resources = func(yield func(Resource) bool) {
		index := 0
		for b := range occurrences(message, l.resources) {
			if !yield(resource(index, b, r.TypeURL)) {
				return
			}
			index++
		}
	}
	return r, nil
}

func none[T any](func(T) bool) {}

// occurrences iterates the values of a length-delimited field in a message that is
// well-formed. They are read again instead of listed, because a hostile message can hold
// tens of millions of empty ones.
func occurrences(message []byte, number protowire.Number) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for b := message; len(b) > 0; {
			f, rest, err := protofield.Next(b)
			if err != nil {
				return
			}
			b = rest
			if f.Number == number && f.Kind == protowire.BytesType && !yield(f.Value) {
				return
			}
		}
	}
}
