package xdsresource

import (
	"slices"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/protofield"
	"github.com/dynxds/dynxds/internal/provenance"
)

// Numbers of fields in proto messages.
const (
	fieldVirtualHosts = 2 // RouteConfiguration.virtual_hosts
	fieldLocalities   = 2 // ClusterLoadAssignment.endpoints
	fieldEndpoints    = 2 // LocalityLbEndpoints.lb_endpoints
	fieldRoutes       = 3 // VirtualHost.routes
	fieldMatch        = 1 // Route.match
	fieldMetadata     = 4 // Route.metadata

	fieldRDS          = 3  // HttpConnectionManager.rds
	fieldRouteConfig  = 4  // HttpConnectionManager.route_config
	fieldScopedRoutes = 31 // HttpConnectionManager.scoped_routes
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

// without returns a message without the messages in the fields of a number, and how many those are. There are none in a
// message that is broken, which stays as it is.
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
		return b, 0
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
	case j.copied, len(part) == 0:
		j.bytes = append(j.bytes, part...)
	case cap(j.bytes) > n && &j.bytes[:n+1][n] == &part[0]:
		j.bytes = j.bytes[:n+len(part)]
	default:
		j.bytes, j.copied = append(slices.Clip(j.bytes), part...), true
	}
}

// marshal returns a message that was read as bytes. It returns nil if the message has text that is not UTF-8, which no reader lets
// pass.
func marshal(pb proto.Message) []byte {
	b, _ := proto.Marshal(pb)
	return b
}

// A RouteConfiguration, also one in a Listener, and a ClusterLoadAssignment are read in parts. As a message each takes ten times the
// memory of its bytes, which for forty megabytes is more than a program can spare; a route or an endpoint at a time takes that of its own.

// Numbers of fields in proto messages.
const (
	fieldRouteName   = 14 // Route.name
	fieldMatchPrefix = 1  // RouteMatch.prefix
	fieldMatchPath   = 2  // RouteMatch.path
)

// routeParts are the parts of a route on the wire.
type routeParts struct {
	name, match []byte
	// settings are all other fields, without metadata that says where a route was written.
	settings []byte
	matches  int
	broken   bool
}

func splitRoute(raw []byte) (parts routeParts) {
	var settings joined
	f := fields(raw)
	for f.next() {
		switch {
		case f.is(fieldRouteName):
			parts.name = f.value
		case f.is(fieldMatch):
			parts.match = f.value
			parts.matches++
		case f.is(fieldMetadata) && provenance.IsPlaces(f.value):
		default:
			settings.add(f.whole)
		}
	}
	parts.settings = settings.bytes
	parts.broken = f.broken || !utf8.Valid(parts.name)
	return parts
}

// routePart decodes one route. It reports false if gRPC ignores the route (gRFC A28).
func (d *routeDecoder) routePart(at *faults.Path, raw []byte, route *Route) bool {
	parts := splitRoute(raw)
	if parts.broken || parts.matches > 1 {
		if err := proto.Unmarshal(raw, &d.routePB); err != nil {
			d.fault(at, "cannot be read as envoy.config.route.v3.Route: %v", err)
			return true
		}
		parts = splitRoute(marshal(&d.routePB)) // as protobuf merges what is there more than once
	}
	route.Name = textIn(parts.name)
	if parts.matches == 0 {
		d.fault(at.Field("match"), "must be set")
	} else {
		route.Match = d.wireMatch(at.Field("match"), parts.match)
	}
	d.settings(at, parts.settings, route)
	return route.Settings != nil
}

// window is how many routes of the last version are compared with a route of this version. So 99 routes that were removed in a row
// are skipped:
//
//	last version  a b c d e
//	this version  a d e      d is compared with b, c and d; then e with e
const window = 100

// settings decodes all of a route but its name and match. There are none if gRPC ignores the route. Routes of a virtual host with
// the same settings, such as those to one cluster, share them; so does the next version, if its routes are in about the same order.
func (d *routeDecoder) settings(at *faults.Path, raw []byte, route *Route) {
	for i := d.next; i < min(d.next+window, len(d.last.Routes)); i++ {
		if last := d.last.Routes[i]; last.key != "" && last.key == textIn(raw) {
			d.next = i + 1
			route.Settings, route.key = last.Settings, textIn(raw)
			return
		}
	}
	if known, ok := d.known[textIn(raw)]; ok {
		d.ignored.addAgain(known.notes)
		route.Settings, route.key = known.Settings, known.key
		return
	}
	d.tied, d.ignored.noted = false, nil
	if !d.read(at, raw, &d.routePB) {
		route.Settings = new(Settings)
		return
	}
	route.Settings = d.route(at, &d.routePB)
	if !d.tied && d.ignored.noted == nil {
		route.key = textIn(raw)
	}
	if route.Settings != nil && !d.failed() {
		d.known[textIn(raw)] = knownRoute{route, d.ignored.noted}
	}
}

// wireMatch decodes a match.
func (d *routeDecoder) wireMatch(at *faults.Path, raw []byte) matching.Route {
	if match, ok := pathMatch(raw); ok {
		return match
	}
	if !d.read(at, raw, &d.matchPB) {
		return matching.Route{}
	}
	return d.routeMatch(at, &d.matchPB)
}

// pathMatch decodes the match of a path or a prefix alone, which needs no message. It reports false of another one.
func pathMatch(raw []byte) (matching.Route, bool) {
	f := fields(raw)
	if f.next() && len(f.rest) == 0 && utf8.Valid(f.value) {
		switch {
		case f.is(fieldMatchPrefix):
			return matching.Route{Path: textIn(f.value)}, true
		case f.is(fieldMatchPath):
			return matching.Route{PathKind: matching.PathExact, Path: textIn(f.value)}, true
		}
	}
	return matching.Route{}, false
}

// textIn returns bytes of a resource, which do not change, as text that shares their memory: the bytes are
// kept together with the value anyway.
func textIn(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
