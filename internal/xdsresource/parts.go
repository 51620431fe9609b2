package xdsresource

import (
	"iter"
	"unicode/utf8"
	"unsafe"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/matching"
	"github.com/dynxds/dynxds/internal/provenance"
)

// A RouteConfiguration, also one in a Listener, and a ClusterLoadAssignment, also one in a Cluster, are read in parts. As a message of its own each takes ten times the
// memory of its bytes, which for forty megabytes is more than a program can spare; a route or an endpoint at a time takes
// that of its own.

// hostPart is a virtual host without its routes, and the routes on the wire.
type hostPart struct {
	pb     *routepb.VirtualHost
	rest   []byte // the former on the wire
	count  int
	routes iter.Seq[[]byte]
}

// hosts returns the virtual hosts of a RouteConfiguration. One that is malformed is an error, and is
// yielded without its routes.
func (v *validator) hosts(at *faults.Path, raw []byte) iter.Seq[hostPart] {
	return func(yield func(hostPart) bool) {
		list := fields(raw)
		for i := 0; list.nextOf(fieldVirtualHosts); i++ {
			host := list.value
			rest, count := without(host, fieldRoutes)
			part := hostPart{pb: new(routepb.VirtualHost), rest: rest, count: max(count, 0)}
			v.read(at.Item("virtual_hosts", i), rest, part.pb)
			part.routes = func(yield func([]byte) bool) {
				routes := fields(host)
				for range part.count {
					if routes.nextOf(fieldRoutes); !yield(routes.value) {
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

// localities returns the localities of a ClusterLoadAssignment. What is malformed is an error; a locality is yielded
// without its endpoints then, and an endpoint is not.
func (v *validator) localities(at *faults.Path, raw []byte) iter.Seq[localityPart] {
	return func(yield func(localityPart) bool) {
		list := fields(raw)
		for i := 0; list.nextOf(fieldLocalities); i++ {
			locality := list.value
			at := at.Item("endpoints", i)
			rest, count := without(locality, fieldEndpoints)
			part := localityPart{pb: new(endpointpb.LocalityLbEndpoints), count: max(count, 0)}
			v.read(at, rest, part.pb)
			part.endpoints = func(yield func(int, *endpointpb.LbEndpoint) bool) {
				endpoints := fields(locality)
				var pb endpointpb.LbEndpoint
				for i := range part.count {
					endpoints.nextOf(fieldEndpoints)
					if v.read(at.Item("lb_endpoints", i), endpoints.value, &pb) && !yield(i, &pb) {
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
	route.Settings = d.settings(at, parts.settings)
	return route.Settings != nil
}

// settings decodes all of a route but its name and match. It returns nil if gRPC ignores the route. Routes of a virtual host
// with the same settings, such as those to one cluster, share them; so does the next version.
func (d *routeDecoder) settings(at *faults.Path, raw []byte) *Settings {
	if known := d.known[textIn(raw)]; known != nil {
		d.ignored.addAgain(d.notes[known])
		return known
	}
	if known := d.before[textIn(raw)]; known != nil {
		d.known[textIn(raw)] = known
		return known
	}
	d.tied, d.ignored.noted = false, nil
	if !d.read(at, raw, &d.routePB) {
		return new(Settings)
	}
	s := d.route(at, &d.routePB)
	if s == nil || d.failed() {
		return s
	}
	d.known[textIn(raw)] = s
	if notes := d.ignored.noted; notes != nil {
		d.notes[s], d.tied = notes, true
	}
	if d.tied {
		d.once = append(d.once, textIn(raw))
	}
	return s
}

// wireMatch decodes a match.
func (d *routeDecoder) wireMatch(at *faults.Path, raw []byte) matching.Route {
	if match, ok := pathMatch(raw); ok {
		return match
	}
	if !d.read(at, raw, &d.matchPB) {
		return matching.Route{}
	}
	return d.match.routeMatch(at, &d.matchPB)
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
