package xdsclient

import (
	"errors"
	"fmt"
	"iter"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/dynxds/dynxds/internal/protofield"
)

// What a server says of subscriptions without sending a resource.

var errNoName = errors.New("it names no resource")

// readNames iterates the names in a field.
func readNames(message []byte, number protowire.Number) iter.Seq[wireName] {
	return func(yield func(wireName) bool) {
		for b := range occurrences(message, number) {
			if !yield(wireName{name: b}) {
				return
			}
		}
	}
}

// readLocators iterates the ResourceName messages in a field.
func readLocators(message []byte, number protowire.Number) iter.Seq[wireName] {
	return func(yield func(wireName) bool) {
		for b := range occurrences(message, number) {
			var n wireName
			if n.err = n.merge(b); n.err == nil && len(n.name) == 0 {
				n.err = errNoName
			}
			if !yield(n) {
				return
			}
		}
	}
}

// merge reads an envoy.service.discovery.v3.ResourceName. As in every message, what
// comes later wins, of constraints too, which a peer sends once.
func (n *wireName) merge(b []byte) error {
	for len(b) > 0 {
		f, rest, err := protofield.Next(b)
		if err != nil {
			return fmt.Errorf("malformed envoy.service.discovery.v3.ResourceName: %w", err)
		}
		b = rest
		switch {
		case f.Kind != protowire.BytesType:
		case f.Number == 1 && !utf8.Valid(f.Value):
			return errors.New("not valid UTF-8")
		case f.Number == 1:
			n.name = f.Value
		case f.Number == 2:
			n.constraints, n.scoped = f.Value, true
		}
	}
	return nil
}

// readErrors iterates the envoy.service.discovery.v3.ResourceError of a field.
func readErrors(message []byte, number protowire.Number) iter.Seq[wireError] {
	return func(yield func(wireError) bool) {
		index := 0
		for b := range occurrences(message, number) {
			e := wireError{index: index}
			if e.err = e.merge(b); e.err == nil && len(e.name) == 0 {
				e.err = errNoName
			}
			if !yield(e) {
				return
			}
			index++
		}
	}
}

// merge reads an envoy.service.discovery.v3.ResourceError.
func (e *wireError) merge(b []byte) error {
	for len(b) > 0 {
		f, rest, err := protofield.Next(b)
		if err != nil {
			return fmt.Errorf("malformed envoy.service.discovery.v3.ResourceError: %w", err)
		}
		b = rest
		if f.Kind != protowire.BytesType {
			continue
		}
		switch f.Number {
		case 1:
			if err = e.wireName.merge(f.Value); err != nil {
				err = fmt.Errorf("resource_name: %w", err)
			}
		case 2:
			err = e.mergeStatus(f.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mergeStatus reads a google.rpc.Status.
func (e *wireError) mergeStatus(b []byte) error {
	for len(b) > 0 {
		f, rest, err := protofield.Next(b)
		if err != nil {
			return fmt.Errorf("error_detail: malformed google.rpc.Status: %w", err)
		}
		b = rest
		switch {
		case f.Number == 1 && f.Kind == protowire.VarintType:
			e.code = int32(f.Varint)
		case f.Number == 2 && f.Kind == protowire.BytesType:
			e.message = f.Value
		}
	}
	return nil
}
