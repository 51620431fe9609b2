package xdsresource

import (
	"slices"

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

// fieldsOf goes through the fields of a message on the wire. After next it has a field, its tag and length in whole.
type fieldsOf struct {
	rest, whole, value []byte
	number             protowire.Number
	kind               protowire.Type
	broken             bool
}

func fields(b []byte) fieldsOf { return fieldsOf{rest: b} }

// next goes to the next field. It reports false after the last one.
func (f *fieldsOf) next() bool {
	if len(f.rest) == 0 {
		return false
	}
	found, rest, err := protofield.Next(f.rest)
	if err != nil {
		*f = fieldsOf{broken: true}
		return false
	}
	f.whole = f.rest[:len(f.rest)-len(rest)]
	f.number, f.kind, f.value, f.rest = found.Number, found.Kind, found.Value, rest
	return true
}

// is reports whether the field may be a message in the field of a number.
func (f *fieldsOf) is(number protowire.Number) bool {
	return f.number == number && f.kind == protowire.BytesType
}

// nextOf goes to the next field of a number that may be a message.
func (f *fieldsOf) nextOf(number protowire.Number) bool {
	for f.next() {
		if f.is(number) {
			return true
		}
	}
	return false
}

// without returns a message without the messages in the fields of a number, and how many those are. The
// count is below 0 if the message is broken, which stays as it is.
func without(b []byte, number protowire.Number) (rest []byte, n int) {
	var others joined
	f := fields(b)
	for f.next() {
		if f.is(number) {
			n++
		} else {
			others.add(f.whole)
		}
	}
	if f.broken {
		return b, -1
	}
	return slices.Clip(others.bytes), n
}

// joined are parts of a message one after the other. They are copied only if they do not stand so in the message.
type joined struct {
	bytes  []byte
	copied bool
}

func (j *joined) add(part []byte) {
	n := len(j.bytes)
	switch {
	case n == 0:
		j.bytes = part
	case j.copied:
		j.bytes = append(j.bytes, part...)
	case cap(j.bytes) > n && &j.bytes[:n+1][n] == &part[0]:
		j.bytes = j.bytes[:n+len(part)]
	default:
		j.bytes, j.copied = append(slices.Clip(j.bytes), part...), true
	}
}

// only returns the value of a field that is there exactly once.
func only(b []byte, number protowire.Number) ([]byte, bool) {
	f := fields(b)
	if !f.nextOf(number) {
		return nil, false
	}
	value := f.value
	return value, !f.nextOf(number)
}

// has reports whether a message has a field.
func has(b []byte, number protowire.Number) bool {
	f := fields(b)
	for f.next() {
		if f.number == number {
			return true
		}
	}
	return false
}

// marshal returns a message that was read as bytes. It returns nil if the message has text that is not UTF-8, which no reader lets
// pass.
func marshal(pb proto.Message) []byte {
	b, _ := proto.Marshal(pb)
	return b
}
