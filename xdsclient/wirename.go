package xdsclient

import (
	"errors"
	"fmt"
	"iter"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
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
		f, rest, err := nextField(b)
		if err != nil {
			return fmt.Errorf("malformed envoy.service.discovery.v3.ResourceName: %w", err)
		}
		b = rest
		switch {
		case f.kind != protowire.BytesType:
		case f.number == 1 && !utf8.Valid(f.value):
			return errors.New("not valid UTF-8")
		case f.number == 1:
			n.name = f.value
		case f.number == 2:
			n.constraints, n.scoped = f.value, true
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
		f, rest, err := nextField(b)
		if err != nil {
			return fmt.Errorf("malformed envoy.service.discovery.v3.ResourceError: %w", err)
		}
		b = rest
		if f.kind != protowire.BytesType {
			continue
		}
		switch f.number {
		case 1:
			if err = e.wireName.merge(f.value); err != nil {
				err = fmt.Errorf("resource_name: %w", err)
			}
		case 2:
			err = e.mergeStatus(f.value)
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
		f, rest, err := nextField(b)
		if err != nil {
			return fmt.Errorf("error_detail: malformed google.rpc.Status: %w", err)
		}
		b = rest
		switch {
		case f.number == 1 && f.kind == protowire.VarintType:
			e.code = int32(f.varint)
		case f.number == 2 && f.kind == protowire.BytesType:
			e.message = f.value
		}
	}
	return nil
}
