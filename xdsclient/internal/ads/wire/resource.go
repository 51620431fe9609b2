package wire

import (
	"errors"
	"fmt"
	"iter"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/protofield"
	"github.com/dynxds/dynxds/internal/typeurl"
)

// Resource is a resource of a response. It refers to the bytes of the message.
type Resource struct {
	// Index is the place of the resource in the response.
	Index int
	// Name and Version are those of the wrapper, and empty for a bare resource.
	Name, Version []byte
	// Parameters are the serialized dynamic parameters of the wrapper, which mean
	// something only from a server that is asked for locators.
	Parameters []byte
	// Value is the serialized resource.
	Value []byte
	// Heartbeat says that the wrapper has a name and a version but no resource: the server
	// only says that it still has this version (Envoy, xDS protocol, "TTL").
	Heartbeat bool
	// TTL is how long the resource is valid unless the server says again that it is; zero:
	// until it says otherwise.
	TTL time.Duration
	// DoNotCache says that the resource is for the client that asked for it only.
	DoNotCache bool
	// Err says why there is no value to decode.
	Err error
	// Wrapper is the serialized wrapper, or nil for a bare resource.
	Wrapper []byte
	aliased bool
}

// HasAliases reports whether the resource goes by other names too.
func (r *Resource) HasAliases() bool { return r.aliased }

// Aliases iterates the other names that the resource goes by.
func (r *Resource) Aliases() iter.Seq[[]byte] {
	return occurrences(r.Wrapper, wrapperAliases, func(_ int, b []byte) []byte { return b })
}

// anyMessage is a google.protobuf.Any.
type anyMessage struct {
	typeURL, value []byte
}

// merge reads an Any. As in every message, the last occurrence of a field wins.
func (a *anyMessage) merge(b []byte) error {
	return protofield.Each(b, "google.protobuf.Any", func(f protofield.Field) error {
		switch {
		case f.Kind != protowire.BytesType:
		case f.Number == 1:
			a.typeURL = f.Value
		case f.Number == 2:
			a.value = f.Value
		}
		return nil
	})
}

// The fields that are read of envoy.service.discovery.v3.Resource.
const (
	wrapperVersion  = 1
	wrapperResource = 2
	wrapperName     = 3
	wrapperAliases  = 4
	wrapperTTL      = 6
	wrapperCache    = 7
	// wrapperParameters has entries of a map<string, string>, from a server that is asked
	// for locators (xRFC TP2).
	wrapperParameters = 8
)

// unpack reads the resource in an Any, bare or wrapped. typeURL is that of the response.
func unpack(index int, b []byte, typeURL string) Resource {
	r := Resource{Index: index}
	var a anyMessage
	if r.Err = a.merge(b); r.Err != nil {
		return r
	}
	if string(a.typeURL) == typeurl.Wrapper {
		return unwrap(index, a.value, typeURL)
	}
	r.setValue(a, typeURL)
	return r
}

// unwrap reads a resource in its wrapper.
func unwrap(index int, b []byte, typeURL string) Resource {
	r := Resource{Index: index, Wrapper: b}
	if err := r.merge(b, typeURL); err != nil {
		return Resource{Index: index, Wrapper: b, Err: err}
	}
	return r
}

// merge reads an envoy.service.discovery.v3.Resource with a resource of a type.
func (r *Resource) merge(b []byte, typeURL string) error {
	var resource anyMessage
	full := false // there is a resource, even if it is empty
	first := 0    // where the parameters begin
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
			r.Version = f.Value
		case wrapperResource:
			if err := resource.merge(f.Value); err != nil {
				return fmt.Errorf("resource: %w", err)
			}
			full = true
		case wrapperName:
			if !utf8.Valid(f.Value) {
				return errors.New("name: not valid UTF-8")
			}
			r.Name = f.Value
		case wrapperAliases:
			r.aliased = true
		case wrapperTTL: // a google.protobuf.Duration
			r.TTL = readDuration(f.Value)
		case wrapperCache: // a Resource.CacheControl
			r.DoNotCache = readNumbers(f.Value)[1] != 0
		case wrapperParameters: // all occurrences, tags included
			if len(r.Parameters) == 0 {
				first = start
			}
			if start-first == len(r.Parameters) { // nothing is in between, as mostly
				r.Parameters = b[first:at:at]
			} else {
				r.Parameters = append(r.Parameters, b[start:at]...)
			}
		}
	}
	if r.Heartbeat = !full && len(r.Name) > 0 && len(r.Version) > 0; !r.Heartbeat {
		r.setValue(resource, typeURL)
	}
	return nil
}

// ParseWrapper reads an envoy.service.discovery.v3.Resource with a resource of a type.
func ParseWrapper(b []byte, typeURL string) Resource { return unwrap(0, b, typeURL) }

// readDuration reads a google.protobuf.Duration. One that is malformed or not positive is none.
func readDuration(b []byte) time.Duration {
	n := readNumbers(b)
	seconds, nanos := int64(n[1]), int64(n[2])
	if seconds < 0 || nanos < 0 || nanos >= int64(time.Second) {
		return 0
	}
	return time.Duration(min(seconds, int64(maxTTL/time.Second)))*time.Second + time.Duration(nanos)
}

// maxTTL is more than any server means, and no overflow.
const maxTTL = 100 * 365 * 24 * time.Hour

// readNumbers reads the varints of fields 1 and 2 of a message, as far as it is well-formed.
func readNumbers(b []byte) (n [3]uint64) {
	protofield.Each(b, "", func(f protofield.Field) error {
		if f.Kind == protowire.VarintType && (f.Number == 1 || f.Number == 2) {
			n[f.Number] = f.Varint
		}
		return nil
	})
	return n
}

// setValue sets the value, or Err if the Any has none of the type.
func (r *Resource) setValue(a anyMessage, typeURL string) {
	// A switch over string(a.typeURL) would copy it.
	switch {
	case string(a.typeURL) == typeURL:
		r.Value = a.value
	case len(a.typeURL) == 0:
		r.Err = errors.New("there is no resource in the google.protobuf.Any")
	default:
		r.Err = fmt.Errorf("its type is %q in a response for %q", bounds.Text(string(a.typeURL), bounds.ErrorText), typeURL)
	}
}
