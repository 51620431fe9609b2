package xdsresource

import (
	"errors"
	"fmt"
	"iter"
	"unicode/utf8"
	"unsafe"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/typeurl"
)

// A RouteConfiguration, also one in a Listener, and a ClusterLoadAssignment, also one in a Cluster, are read in parts. As a message of its own each takes ten times the
// memory of its bytes, which for forty megabytes is more than a program can spare; a route or an endpoint at a time takes
// that of its own.

// hostPart is a virtual host without its routes, and the routes on the wire.
type hostPart struct {
	pb     *routepb.VirtualHost
	count  int
	routes iter.Seq[[]byte]
	// raw is the whole on the wire, and rest is raw without the routes.
	raw, rest []byte
}

// hosts returns the virtual hosts of a RouteConfiguration. One that is malformed is a fault, and is
// yielded without its routes.
func (v *validator) hosts(at *faults.Path, raw []byte) iter.Seq[hostPart] {
	return func(yield func(hostPart) bool) {
		list := fields(raw)
		for i := 0; ; i++ {
			host := list.nextOf(fieldVirtualHosts)
			if host.number == 0 {
				return
			}
			rest, count := without(host.value, fieldRoutes)
			part := hostPart{pb: new(routepb.VirtualHost), count: max(count, 0), raw: host.value, rest: rest}
			v.readPart(at.Item("virtual_hosts", i), rest, count >= 0, part.pb)
			part.routes = func(yield func([]byte) bool) {
				routes := fields(host.value)
				for range part.count {
					if !yield(routes.nextOf(fieldRoutes).value) {
						return
					}
				}
			}
			if !yield(part) {
				return
			}
		}
	}
}

// localityPart is a locality without its endpoints, and the endpoints by index. An endpoint is for the time of its turn
// alone.
type localityPart struct {
	pb        *endpointpb.LocalityLbEndpoints
	count     int
	endpoints iter.Seq2[int, *endpointpb.LbEndpoint]
}

// localities returns the localities of a ClusterLoadAssignment. What is malformed is a fault; a locality is yielded
// without its endpoints then, and an endpoint is not.
func (v *validator) localities(at *faults.Path, raw []byte) iter.Seq[localityPart] {
	return func(yield func(localityPart) bool) {
		list := fields(raw)
		for i := 0; ; i++ {
			locality := list.nextOf(fieldLocalities)
			if locality.number == 0 {
				return
			}
			at := at.Item("endpoints", i)
			rest, count := without(locality.value, fieldEndpoints)
			part := localityPart{pb: new(endpointpb.LocalityLbEndpoints), count: max(count, 0)}
			v.readPart(at, rest, count >= 0, part.pb)
			part.endpoints = func(yield func(int, *endpointpb.LbEndpoint) bool) {
				endpoints := fields(locality.value)
				var pb endpointpb.LbEndpoint
				for i := range part.count {
					if v.readPart(at.Item("lb_endpoints", i), endpoints.nextOf(fieldEndpoints).value, true, &pb) && !yield(i, &pb) {
						return
					}
				}
			}
			if !yield(part) {
				return
			}
		}
	}
}

// readPart reads a part of a resource. What cannot be read is a fault.
func (v *validator) readPart(at *faults.Path, b []byte, wellFormed bool, pb proto.Message) bool {
	if !wellFormed || !unmarshal(pb, b) {
		v.fault(at, "cannot be read as %s", pb.ProtoReflect().Descriptor().FullName())
		return false
	}
	return true
}

// maxSharedRoutes bounds the routes that a wireDecoder remembers.
const maxSharedRoutes = 1 << 10

// wireDecoder reads routes on the wire. Those of a virtual host that differ only in name and match, as
// routes to one cluster do, share all else, which is decoded once.
type wireDecoder struct {
	routeSplitter
	// shared has the settings of routes by all their fields but name and match.
	shared map[string]*Settings
	match  routepb.RouteMatch
	route  routepb.Route
}

// routeSplitter takes routes on the wire apart.
type routeSplitter struct {
	others []byte // all fields of the last route but name and match
}

// Numbers of fields in proto messages.
const (
	fieldRouteName   = 14 // Route.name
	fieldMatchPrefix = 1  // RouteMatch.prefix
	fieldMatchPath   = 2  // RouteMatch.path
)

// routePart decodes one route. It reports false if gRPC ignores the route (gRFC A28).
func (d *routeDecoder) routePart(at *faults.Path, raw []byte, route *Route) bool {
	name, match, ok := d.wire.split(raw)
	if shared := d.wire.shared[string(d.wire.others)]; ok && shared != nil {
		*route = Route{textIn(name), d.wireMatch(at.Field("match"), match), shared}
		return true
	}
	if !d.readPart(at, raw, true, &d.wire.route) {
		return true
	}
	isUsed := d.route(at, &d.wire.route, route)
	// What is reported of a route is reported of each.
	if ok && isUsed && !d.failed() && len(d.ignored.found) == 0 && len(d.wire.shared) < maxSharedRoutes {
		if d.wire.shared == nil {
			d.wire.shared = make(map[string]*Settings)
		}
		d.wire.shared[string(d.wire.others)] = route.Settings
	}
	return isUsed
}

// split finds the name and the match of a route, and sets others. It reports false if the route has to be read as
// a message.
func (s *routeSplitter) split(raw []byte) (name, match []byte, ok bool) {
	s.others = s.others[:0]
	matches := 0
	f := fields(raw)
	for found := f.next(); found.number != 0; found = f.next() {
		switch isBytes := found.kind == protowire.BytesType; {
		case isBytes && found.number == fieldRouteName:
			name = found.value
		case isBytes && found.number == fieldMatch:
			match = found.value
			matches++
		default:
			s.others = append(s.others, found.whole...)
		}
	}
	return name, match, !f.broken && matches == 1 && utf8.Valid(name)
}

// isPlain is split for a route whose match is a path or a prefix alone. It reports false of other routes.
func (s *routeSplitter) isPlain(raw []byte) bool {
	_, match, ok := s.split(raw)
	if ok {
		_, ok = pathMatch(match)
	}
	return ok
}

// wireMatch decodes a match.
func (d *routeDecoder) wireMatch(at *faults.Path, raw []byte) matching.Route {
	if match, ok := pathMatch(raw); ok {
		return match
	}
	if !d.readPart(at, raw, true, &d.wire.match) {
		return matching.Route{}
	}
	return d.match.routeMatch(at, &d.wire.match)
}

// pathMatch decodes the match of a path or a prefix alone, which needs no message. It reports false of another one.
func pathMatch(raw []byte) (matching.Route, bool) {
	f := fields(raw)
	only := f.next()
	if len(f.rest) == 0 && !f.broken && only.kind == protowire.BytesType && utf8.Valid(only.value) {
		switch only.number {
		case fieldMatchPrefix:
			return matching.Route{Path: textIn(only.value)}, true
		case fieldMatchPath:
			return matching.Route{PathKind: matching.PathExact, Path: textIn(only.value)}, true
		}
	}
	return matching.Route{}, false
}

// textIn returns bytes of a resource, which do not change, as text that shares their memory: the bytes are
// kept together with the value anyway.
func textIn(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// read goes through the fields of a message on the wire.
func (w *fieldWalk) read(at *faults.Path, raw []byte, m proto.Message) error {
	if isClosed(w.done) {
		return errors.New("the list is no longer needed")
	}
	if err := proto.Unmarshal(raw, m); err != nil {
		return fmt.Errorf("cannot be read as %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	w.message(at, m.ProtoReflect())
	return nil
}

// nesting is where a message has most of its bytes: in a list of messages that each have a list of their own.
type nesting struct {
	outer, inner               protowire.Number
	outerName, innerName       string
	outerMessage, innerMessage proto.Message
}

// nestings are those of the types that can be large.
var nestings = map[string]nesting{
	typeurl.RouteConfiguration: {fieldVirtualHosts, fieldRoutes, "virtual_hosts", "routes", (*routepb.VirtualHost)(nil), (*routepb.Route)(nil)},
	typeurl.Endpoints:          {fieldLocalities, fieldEndpoints, "endpoints", "lb_endpoints", (*endpointpb.LocalityLbEndpoints)(nil), (*endpointpb.LbEndpoint)(nil)},
}

// noteSpotless notes that nothing is ignored in the route that was last taken apart.
func (w *fieldWalk) noteSpotless() {
	if len(w.spotless) >= maxSharedRoutes {
		return
	}
	if w.spotless == nil {
		w.spotless = make(map[string]bool)
	}
	w.spotless[string(w.routes.others)] = true
}

// parts goes through the lists of a message, an inner message at a time. A route that differs only in name and path
// from one in which nothing is ignored, as most routes of a large table do, needs no look.
func (w *fieldWalk) parts(at *faults.Path, raw []byte, of nesting) error {
	outer, inner := of.outerMessage.ProtoReflect().New().Interface(), of.innerMessage.ProtoReflect().New().Interface()
	list := fields(raw)
	for i := 0; ; i++ {
		part := list.nextOf(of.outer)
		if part.number == 0 {
			return nil
		}
		at := at.Item(of.outerName, i)
		head, count := without(part.value, of.inner)
		if count < 0 {
			head = part.value // It cannot be read, which is found there.
		}
		if err := w.read(at, head, outer); err != nil {
			return err
		}
		members := fields(part.value)
		for j := range count {
			member := members.nextOf(of.inner).value
			isPlain := of.inner == fieldRoutes && w.routes.isPlain(member)
			if isPlain && w.spotless[string(w.routes.others)] {
				continue
			}
			before := w.ignored.added
			if err := w.read(at.Item(of.innerName, j), member, inner); err != nil {
				return err
			}
			if isPlain && w.ignored.added == before {
				w.noteSpotless()
			}
		}
	}
}
