package xdsresource

import (
	"bytes"
	"slices"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/protofield"
	"github.com/dynxds/dynxds/internal/provenance"
)

// A RouteConfiguration may have ten thousand routes, of which an update changes one.
// The value decoded from the last version is then used again, except for the routes whose
// bytes differ in more than places (package provenance). The result must equal that of decoding the whole. So the whole is decoded
// if anything but routes has changed, or if a new route has a fault or something ignored.

// Numbers of fields in proto messages.
const (
	fieldVirtualHosts = 2 // RouteConfiguration.virtual_hosts
	fieldLocalities   = 2 // ClusterLoadAssignment.endpoints
	fieldEndpoints    = 2 // LocalityLbEndpoints.lb_endpoints
	fieldRoutes       = 3 // VirtualHost.routes
	fieldMatch        = 1 // Route.match
)

// routePatch makes a new version of a RouteConfiguration out of the last one.
type routePatch struct {
	v *validator
	// routes decodes those that are new. nil: there is none yet.
	routes *routeDecoder
	// regexCost is what the regular expressions so far come to.
	regexCost int
	// decoded counts the routes that are new.
	decoded int
}

// patch returns what raw is decoded to, or nil if the whole has to be decoded. rc is what
// last was decoded to, from the same server, with nothing ignored. It is returned if at most places differ.
func (rc *RouteConfiguration) patch(v *validator, last, raw []byte) *RouteConfiguration {
	p := routePatch{v: v, regexCost: rc.regexCost}
	hosts, ok := p.hosts(rc, last, raw)
	if !ok {
		return nil
	}
	if slices.Equal(hosts, rc.VirtualHosts) {
		return rc
	}
	patched := *rc
	patched.VirtualHosts = hosts
	patched.compiled = rc.compiled.with(rc.VirtualHosts, hosts)
	if p.routes != nil {
		patched.regexCost = p.routes.match.cost
	}
	return &patched
}

// hosts returns the virtual hosts in raw. Those that have not changed since last are those of rc.
func (p *routePatch) hosts(rc *RouteConfiguration, last, raw []byte) ([]*VirtualHost, bool) {
	hosts := make([]*VirtualHost, 0, len(rc.VirtualHosts))
	for oldFields, newFields := fields(last), fields(raw); ; {
		old, updated := oldFields.next(), newFields.next()
		switch {
		case oldFields.broken || newFields.broken || old.number != updated.number:
			return nil, false
		case old.number == 0:
			return hosts, len(hosts) == len(rc.VirtualHosts)
		case old.number != fieldVirtualHosts && !bytes.Equal(old.whole, updated.whole):
			return nil, false
		case old.number != fieldVirtualHosts:
			continue
		case len(hosts) == len(rc.VirtualHosts):
			return nil, false
		}
		host := rc.VirtualHosts[len(hosts)]
		if !bytes.Equal(old.value, updated.value) {
			if p.routes == nil {
				p.routes = p.above(raw)
			}
			if host = p.host(host, old.value, updated.value); host == nil {
				return nil, false
			}
		}
		hosts = append(hosts, host)
	}
}

// above decodes the settings of a RouteConfiguration for all its virtual hosts. It returns
// nil if they cannot be read.
func (p *routePatch) above(raw []byte) *routeDecoder {
	rest, hosts := without(raw, fieldVirtualHosts)
	pb := new(routepb.RouteConfiguration)
	if hosts < 0 || !unmarshal(pb, rest) {
		return nil
	}
	d := newRouteDecoder(p.v, nil, pb)
	d.match.cost = p.regexCost
	return d
}

// host returns the virtual host in updated, given the one in old, which was decoded to
// host. It returns host if at most places differ, and nil if more than routes differs and the whole
// has to be decoded.
func (p *routePatch) host(host *VirtualHost, old, updated []byte) *VirtualHost {
	start, end := equalEnds(old, updated)
	oldPart, part := old[start:len(old)-end], updated[start:len(updated)-end]
	restBefore, countBefore := without(updated[:start], fieldRoutes)
	restAfter, countAfter := without(updated[len(updated)-end:], fieldRoutes)
	oldRest, oldCount := without(oldPart, fieldRoutes)
	rest, count := without(part, fieldRoutes)
	pb := new(routepb.VirtualHost)
	switch {
	case p.routes == nil || min(countBefore, countAfter, oldCount, count) < 0,
		countBefore+oldCount+countAfter != len(host.Routes) || !bytes.Equal(oldRest, rest),
		!unmarshal(pb, slices.Concat(restBefore, rest, restAfter)):
		return nil
	}
	p.routes.enter(nil, pb)
	before, after := host.Routes[:countBefore], host.Routes[countBefore+oldCount:]
	e := routeEdit{p: p, old: host.Routes[countBefore : countBefore+oldCount], sameMatches: oldCount == count}
	e.routes = append(make([]*Route, 0, countBefore+count+countAfter), before...)
	if !e.run(fields(oldPart), fields(part), count-oldCount) || p.v.failed() || len(p.v.ignored.found) > 0 {
		return nil
	}
	if len(e.added)+len(e.removed) == 0 {
		return host
	}
	e.routes = append(e.routes, after...)
	patched := *host
	patched.Routes = e.routes
	patched.compiled = host.compiled.with(&patched, &e)
	return &patched
}

// routeEdit compares the routes of a virtual host before and after an update.
type routeEdit struct {
	p   *routePatch
	old []*Route
	// routes are those after the update.
	routes []*Route
	// removed and added are the routes that are only in one of them.
	removed, added []*Route
	// sameMatches says that each added route matches what the one that it replaces
	// matched.
	sameMatches bool
}

// run compares the routes. If there are more than before, it takes that many for inserted
// where the lists begin to differ; if fewer, for removed. It compares the rest one by one.
// It reports false if the whole has to be decoded.
func (e *routeEdit) run(oldFields, newFields fieldsOf, more int) bool {
	same := 0 // the number of routes before the first difference
	old, updated := oldFields.nextOf(fieldRoutes), newFields.nextOf(fieldRoutes)
	for ; old.number != 0 && updated.number != 0 && provenance.SameRoute(old.value, updated.value); same++ {
		old, updated = oldFields.nextOf(fieldRoutes), newFields.nextOf(fieldRoutes)
	}
	e.routes = append(e.routes, e.old[:same]...)
	at := same
	for ; more < 0; more++ {
		e.removed = append(e.removed, e.old[at])
		old = oldFields.nextOf(fieldRoutes)
		at++
	}
	for ; more > 0; more-- {
		if !e.decode(updated.value) {
			return false
		}
		updated = newFields.nextOf(fieldRoutes)
	}
	for ; updated.number != 0; at++ {
		if provenance.SameRoute(old.value, updated.value) {
			e.routes = append(e.routes, e.old[at])
		} else {
			e.removed = append(e.removed, e.old[at])
			if !e.decode(updated.value) {
				return false
			}
			e.sameMatches = e.sameMatches && equalMatches(old.value, updated.value)
		}
		old, updated = oldFields.nextOf(fieldRoutes), newFields.nextOf(fieldRoutes)
	}
	return true
}

// maxPatched bounds the routes that a patch decodes. If more have changed, decoding the
// whole is better, since its routes share what is equal.
const maxPatched = 256

// decode decodes a new route. It reports false if the whole has to be decoded, also
// because the route has overrides, which equal entries of one resource share.
func (e *routeEdit) decode(raw []byte) bool {
	if e.p.decoded++; e.p.decoded > maxPatched {
		return false
	}
	pb, route := new(routepb.Route), new(Route)
	if !unmarshal(pb, raw) || !e.p.routes.route(nil, pb, route) || route.hasOverrides() {
		return false
	}
	e.added = append(e.added, route)
	e.routes = append(e.routes, route)
	return true
}

// hasOverrides reports whether the route, or a cluster of it, overrides filters.
func (r *Route) hasOverrides() bool {
	if forward, ok := r.Action.(*Forward); ok {
		for i := range forward.Clusters {
			if len(forward.Clusters[i].Overrides) > 0 {
				return true
			}
		}
	}
	return len(r.Overrides) > 0
}

// equalMatches reports whether two routes have the same match on the wire.
func equalMatches(a, b []byte) bool {
	a, aOK := only(a, fieldMatch)
	b, bOK := only(b, fieldMatch)
	return aOK && bOK && bytes.Equal(a, b)
}

// equalEnds returns the lengths, in bytes, of the fields that two messages both start with and
// of those that both end with. Only what is between them, which is little after most updates,
// has to be compared field by field.
func equalEnds(a, b []byte) (start, end int) {
	equal := equalBytes(a, b)
	before := fields(b)
	for before.next().number != 0 && len(b)-len(before.rest) <= equal {
		start = len(b) - len(before.rest)
	}
	a, b = a[start:], b[start:]
	equal = equalBytesAtEnd(a, b)
	// As soon as a field starts in both and the remaining bytes are equal, so are the remaining fields.
	afterA, afterB := fields(a), fields(b)
	for len(afterA.rest) != len(afterB.rest) || len(afterA.rest) > equal {
		if len(afterA.rest) >= len(afterB.rest) {
			afterA.next()
		} else {
			afterB.next()
		}
	}
	return start, len(afterA.rest)
}

// chunk is how many bytes are compared at once.
const chunk = 1 << 10

// equalBytes returns how many bytes at the start of a and b are the same.
func equalBytes(a, b []byte) int {
	n, shorter := 0, min(len(a), len(b))
	for n+chunk <= shorter && bytes.Equal(a[n:n+chunk], b[n:n+chunk]) {
		n += chunk
	}
	for n < shorter && a[n] == b[n] {
		n++
	}
	return n
}

// equalBytesAtEnd returns how many bytes at the end of a and b are the same.
func equalBytesAtEnd(a, b []byte) int {
	shorter := min(len(a), len(b))
	a, b = a[len(a)-shorter:], b[len(b)-shorter:]
	n := shorter
	for n >= chunk && bytes.Equal(a[n-chunk:n], b[n-chunk:n]) {
		n -= chunk
	}
	for n > 0 && a[n-1] == b[n-1] {
		n--
	}
	return shorter - n
}

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
