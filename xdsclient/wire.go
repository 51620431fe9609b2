package xdsclient

import (
	"errors"
	"fmt"
	"iter"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/protofield"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// Responses are read without proto.Unmarshal, which copies each resource. What
// is unchanged, most of a SotW response, then costs no allocation.

// layout is where the message of a variant has what makes up a response. removed
// and removedLocators are 0 if it has no such field.
type layout struct {
	message                                  string
	version, resources, typeURL, nonce       protowire.Number
	removed, removedLocators, resourceErrors protowire.Number
}

// read reads all of a message but what it says of single resources.
func (l *layout) read(message []byte) (*response, error) {
	r := &response{errors: none[wireError], removed: none[wireName], removedLocators: none[wireName], beforeNonce: message}
	hasErrors, hasRemoved, hasRemovedLocators := false, false, false
	for b := message; len(b) > 0; {
		f, rest, err := protofield.Next(b)
		if err != nil {
			return nil, fmt.Errorf("malformed %s: %w", l.message, err)
		}
		start := b
		b = rest
		var text *string
		switch {
		case f.Kind != protowire.BytesType:
			continue
		case f.Number == l.version:
			text = &r.version
		case f.Number == l.typeURL:
			text = &r.typeURL
		case f.Number == l.nonce:
			text = &r.nonce
			r.beforeNonce, r.afterNonce = message[:len(message)-len(start)], rest
		case f.Number == l.resourceErrors:
			hasErrors = true
			continue
		case f.Number == l.removed:
			hasRemoved = true
			continue
		case f.Number == l.removedLocators:
			hasRemovedLocators = true
			continue
		default:
			continue
		}
		if !utf8.Valid(f.Value) {
			return nil, fmt.Errorf("malformed %s: not valid UTF-8", l.message)
		}
		*text = string(f.Value)
	}
	if r.typeURL == "" {
		return nil, fmt.Errorf("malformed %s: type_url is empty", l.message)
	}
	if hasErrors {
		r.errors = readErrors(message, l.resourceErrors)
	}
	if hasRemoved {
		r.removed = readNames(message, l.removed)
	}
	if hasRemovedLocators {
		r.removedLocators = readLocators(message, l.removedLocators)
	}
	return r, nil
}

func none[T any](func(T) bool) {}

// occurrences iterates the values of a length-delimited field in a message that
// was found well-formed. They are read again instead of listed, because a hostile
// message can hold tens of millions of empty ones.
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

// wireAny is a google.protobuf.Any.
type wireAny struct {
	typeURL, value []byte
}

// merge reads an Any. As in every message, what comes later wins.
func (a *wireAny) merge(b []byte) error {
	for len(b) > 0 {
		f, rest, err := protofield.Next(b)
		if err != nil {
			return fmt.Errorf("malformed google.protobuf.Any: %w", err)
		}
		b = rest
		if f.Kind != protowire.BytesType {
			continue
		}
		switch f.Number {
		case 1:
			a.typeURL = f.Value
		case 2:
			a.value = f.Value
		}
	}
	return nil
}

// The fields of envoy.service.discovery.v3.Resource that matter.
const (
	wrapperVersion  = 1
	wrapperResource = 2
	wrapperName     = 3
	wrapperAliases  = 4
	// wrapperParameters has, in the message of a server that is asked for variants,
	// entries of a map<string, string>.
	wrapperParameters = 8
)

// wireWrapper is an envoy.service.discovery.v3.Resource.
type wireWrapper struct {
	name, version []byte
	resource      wireAny
	// full says that there is a resource, even if it is empty.
	full    bool
	aliased bool
	// parameters are all occurrences of their field, tags included.
	parameters []byte
}

func (w *wireWrapper) merge(b []byte) error {
	for at := 0; at < len(b); {
		f, rest, err := protofield.Next(b[at:])
		if err != nil {
			return fmt.Errorf("malformed envoy.service.discovery.v3.Resource: %w", err)
		}
		start := at
		at = len(b) - len(rest)
		if f.Kind != protowire.BytesType {
			continue
		}
		switch f.Number {
		case wrapperVersion:
			if !utf8.Valid(f.Value) {
				return errors.New("version: not valid UTF-8")
			}
			w.version = f.Value
		case wrapperResource:
			if err := w.resource.merge(f.Value); err != nil {
				return fmt.Errorf("resource: %w", err)
			}
			w.full = true
		case wrapperName:
			if !utf8.Valid(f.Value) {
				return errors.New("name: not valid UTF-8")
			}
			w.name = f.Value
		case wrapperAliases:
			w.aliased = true
		case wrapperParameters:
			w.parameters = join(w.parameters, b[start:at])
		}
	}
	return nil
}

// join appends b to a. It does not copy if b follows a in memory, as what a server
// writes of one field mostly does.
func join(a, b []byte) []byte {
	if n := len(a); n > 0 && cap(a) >= n+len(b) && &a[:n+1][n] == &b[0] {
		return a[:n+len(b)]
	}
	if len(a) == 0 {
		return b
	}
	return append(a[:len(a):len(a)], b...)
}

// aliases iterates the other names that the resource goes by.
func (r *wireResource) aliases() iter.Seq[[]byte] { return occurrences(r.wrapper, wrapperAliases) }

// wrapperType is the type URL of the message that may wrap a resource.
const wrapperType = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// unpack reads the resource in an Any, bare or wrapped. typeURL is the type
// of the response.
func unpack(index int, b []byte, typeURL string) wireResource {
	r := wireResource{index: index}
	var a wireAny
	if r.err = a.merge(b); r.err != nil {
		return r
	}
	if string(a.typeURL) == wrapperType {
		return unwrap(index, a.value, typeURL)
	}
	r.take(a, typeURL)
	return r
}

// unwrap reads a resource in its wrapper.
func unwrap(index int, b []byte, typeURL string) wireResource {
	r := wireResource{index: index}
	var w wireWrapper
	if r.err = w.merge(b); r.err != nil {
		return r
	}
	r.name, r.version, r.parameters = w.name, w.version, w.parameters
	if w.aliased {
		r.wrapper = b
	}
	if !w.full && len(w.name) > 0 && len(w.version) > 0 {
		r.heartbeat = true
		return r
	}
	r.take(w.resource, typeURL)
	return r
}

// take takes the resource out of an Any.
func (r *wireResource) take(a wireAny, typeURL string) {
	// A switch over string(a.typeURL) would copy it.
	switch {
	case string(a.typeURL) == typeURL:
		r.value = a.value
	case len(a.typeURL) == 0:
		r.err = errors.New("there is no resource in the google.protobuf.Any")
	default:
		r.err = fmt.Errorf("its type is %q in a response for %q", faults.Shorten(string(a.typeURL), transport.MaxServerText), typeURL)
	}
}
