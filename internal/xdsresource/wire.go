package xdsresource

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/protofield"
)

// Numbers of fields in proto messages.
const (
	fieldVirtualHosts = 2 // RouteConfiguration.virtual_hosts
	fieldLocalities   = 2 // ClusterLoadAssignment.endpoints
	fieldEndpoints    = 2 // LocalityLbEndpoints.lb_endpoints
	fieldRoutes       = 3 // VirtualHost.routes
	fieldMatch        = 1 // Route.match
	fieldMetadata     = 4 // Route.metadata
)

// fieldsOf goes through the fields of a message on the wire.
type fieldsOf struct {
	rest   []byte
	broken bool
}

// field is one of them, with its tag and length in whole. Its number is 0 after the last
// one.
type field struct {
	number       protowire.Number
	kind         protowire.Type
	whole, value []byte
}

func fields(b []byte) fieldsOf { return fieldsOf{rest: b} }

func (f *fieldsOf) next() field {
	if len(f.rest) == 0 {
		return field{}
	}
	found, rest, err := protofield.Next(f.rest)
	if err != nil {
		f.rest, f.broken = nil, true
		return field{}
	}
	whole := f.rest[:len(f.rest)-len(rest)]
	f.rest = rest
	return field{number: found.Number, kind: found.Kind, whole: whole, value: found.Value}
}

// nextOf returns the next field of a number that may be a message.
func (f *fieldsOf) nextOf(number protowire.Number) field {
	found := f.next()
	for found.number != 0 && (found.number != number || found.kind != protowire.BytesType) {
		found = f.next()
	}
	return found
}

// without returns a message without the messages in the fields of a number, and how many those are. The
// count is below 0 if the message is broken.
func without(b []byte, number protowire.Number) (rest []byte, n int) {
	f := fields(b)
	for found := f.next(); found.number != 0; found = f.next() {
		if found.number == number && found.kind == protowire.BytesType {
			n++
		} else {
			rest = append(rest, found.whole...)
		}
	}
	if f.broken {
		return nil, -1
	}
	return rest, n
}

// only returns the value of a field that is there exactly once.
func only(b []byte, number protowire.Number) ([]byte, bool) {
	f := fields(b)
	found := f.nextOf(number)
	return found.value, found.number != 0 && f.nextOf(number).number == 0
}

// has reports whether a message has a field.
func has(b []byte, number protowire.Number) bool {
	f := fields(b)
	found := f.next()
	for found.number != 0 && found.number != number {
		found = f.next()
	}
	return found.number != 0
}

func unmarshal(pb proto.Message, b []byte) bool {
	return (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, pb) == nil
}

// marshal returns a message that was read as bytes. It returns nil if the message has text that is not UTF-8, which no reader lets
// pass.
func marshal(pb proto.Message) []byte {
	b, _ := proto.Marshal(pb)
	return b
}
