package xdsclient

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Responses are read without proto.Unmarshal, which copies each resource. What
// is unchanged, most of a SotW response, then costs no allocation.

// field is one field of a message. value is set for length-delimited fields
// only.
type field struct {
	number protowire.Number
	kind   protowire.Type
	value  []byte
}

// nextField splits a message into its first field and the rest.
func nextField(b []byte) (f field, rest []byte, err error) {
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 {
		return field{}, nil, protowire.ParseError(n)
	}
	f = field{number: number, kind: kind}
	b = b[n:]
	if kind == protowire.BytesType {
		f.value, n = protowire.ConsumeBytes(b)
	} else {
		n = protowire.ConsumeFieldValue(number, kind, b)
	}
	if n < 0 {
		return field{}, nil, protowire.ParseError(n)
	}
	return f, b[n:], nil
}

// wireAny is a google.protobuf.Any.
type wireAny struct {
	typeURL, value []byte
}

// merge reads an Any. As in every message, what comes later wins.
func (a *wireAny) merge(b []byte) error {
	for len(b) > 0 {
		f, rest, err := nextField(b)
		if err != nil {
			return fmt.Errorf("malformed google.protobuf.Any: %w", err)
		}
		b = rest
		if f.kind != protowire.BytesType {
			continue
		}
		switch f.number {
		case 1:
			a.typeURL = f.value
		case 2:
			a.value = f.value
		}
	}
	return nil
}

// wireWrapper is an envoy.service.discovery.v3.Resource.
type wireWrapper struct {
	name     []byte
	resource wireAny
}

func (w *wireWrapper) merge(b []byte) error {
	for len(b) > 0 {
		f, rest, err := nextField(b)
		if err != nil {
			return fmt.Errorf("malformed envoy.service.discovery.v3.Resource: %w", err)
		}
		b = rest
		if f.kind != protowire.BytesType {
			continue
		}
		switch f.number {
		case 2:
			if err := w.resource.merge(f.value); err != nil {
				return fmt.Errorf("resource: %w", err)
			}
		case 3:
			if !utf8.Valid(f.value) {
				return errors.New("name: not valid UTF-8")
			}
			w.name = f.value
		}
	}
	return nil
}

// wrapperType is the type URL of the message that may wrap a resource.
const wrapperType = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// unwrap reads the resource in an Any, be it bare or wrapped. typeURL is the type
// of the response.
func unwrap(index int, b []byte, typeURL string) wireResource {
	r := wireResource{index: index}
	var a wireAny
	if r.err = a.merge(b); r.err != nil {
		return r
	}
	if string(a.typeURL) == wrapperType {
		var w wireWrapper
		if r.err = w.merge(a.value); r.err != nil {
			return r
		}
		r.name, a = w.name, w.resource
	}
	// A switch over string(a.typeURL) would copy it.
	switch {
	case string(a.typeURL) == typeURL:
		r.value = a.value
	case len(a.typeURL) == 0:
		r.err = errors.New("there is no resource in the google.protobuf.Any")
	default:
		r.err = fmt.Errorf("its type is %q in a response for %q", cut(string(a.typeURL), maxServerText), typeURL)
	}
	return r
}
