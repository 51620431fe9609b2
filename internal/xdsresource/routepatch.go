package xdsresource

import (
	"bytes"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/protofield"
)

// A RouteConfiguration may have ten thousand routes, of which an update changes one.
// Then what the last version was decoded to serves again, but for the routes whose bytes
// differ. That is done only where it comes to what decoding the whole does: if anything
// but routes is other than before, or if there is the least to say against a route, the
// whole is decoded.

// Numbers of fields in proto messages.
const (
	fieldVirtualHosts = 2 // RouteConfiguration.virtual_hosts
	fieldRoutes       = 3 // VirtualHost.routes
	fieldMatch        = 1 // Route.match
)

// routePatch makes a RouteConfiguration of an earlier one.
type routePatch struct {
	v *validator
	// routes decodes those that are new. nil: there is none yet.
	routes *routeDecoder
	// regexCost is what the regular expressions so far come to.
	regexCost int
	// decoded counts the routes that are new.
	decoded int
}

// patch returns what raw is decoded to, or nil if the whole has to be decoded. rc was
// decoded from rc.raw by way of the same server.
func (rc *RouteConfiguration) patch(v *validator, raw []byte) *RouteConfiguration {
	if rc.raw == nil || len(rc.Ignored) > 0 {
		return nil
	}
	p := routePatch{v: v, regexCost: rc.regexCost}
	hosts, ok := p.hosts(rc, raw)
	if !ok {
		return nil
	}
	patched := *rc
	patched.VirtualHosts = hosts
	patched.compiled = rc.compiled.with(rc.VirtualHosts, hosts)
	patched.raw = raw
	if p.routes != nil {
		patched.regexCost = p.routes.match.cost
	}
	return &patched
}

// hosts returns the virtual hosts in raw. Those that are as before are those of rc.
func (p *routePatch) hosts(rc *RouteConfiguration, raw []byte) ([]*VirtualHost, bool) {
	hosts := make([]*VirtualHost, 0, len(rc.VirtualHosts))
	for was, is := fields(rc.raw), fields(raw); ; {
		old, now := was.next(), is.next()
		switch {
		case was.broken || is.broken || old.number != now.number:
			return nil, false
		case old.number == 0:
			return hosts, len(hosts) == len(rc.VirtualHosts)
		case old.number != fieldVirtualHosts && !bytes.Equal(old.whole, now.whole):
			return nil, false
		case old.number != fieldVirtualHosts:
			continue
		case len(hosts) == len(rc.VirtualHosts):
			return nil, false
		}
		host := rc.VirtualHosts[len(hosts)]
		if !bytes.Equal(old.value, now.value) {
			if p.routes == nil {
				p.routes = p.above(raw)
			}
			if host = p.host(host, old.value, now.value); host == nil {
				return nil, false
			}
		}
		hosts = append(hosts, host)
	}
}

// above reads what a RouteConfiguration says for all its virtual hosts. It returns nil
// if there is something wrong with it.
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

// host returns the virtual host in now: that in old, which is host, with other routes.
// It returns nil if it has to be decoded as a whole.
func (p *routePatch) host(host *VirtualHost, old, now []byte) *VirtualHost {
	wasRest, before := without(old, fieldRoutes)
	rest, after := without(now, fieldRoutes)
	pb := new(routepb.VirtualHost)
	if p.routes == nil || before != len(host.Routes) || after < 0 || !bytes.Equal(wasRest, rest) || !unmarshal(pb, rest) {
		return nil
	}
	p.routes.enter(nil, pb)
	e := routeEdit{p: p, was: host.Routes, routes: make([]*Route, 0, after), sameMatches: before == after}
	if !e.run(fields(old), fields(now), after-before) || p.v.failed() || len(p.v.ignored.found) > 0 {
		return nil
	}
	patched := *host
	patched.Routes = e.routes
	patched.compiled = host.compiled.with(&patched, &e)
	return &patched
}

// routeEdit goes through the routes of a virtual host before and after an update.
type routeEdit struct {
	p   *routePatch
	was []*Route
	// routes are those after the update.
	routes []*Route
	// gone and come are the routes that are only in one of them.
	gone, come []*Route
	// sameMatches says that each route that has come matches what the one that it
	// stands in for did.
	sameMatches bool
}

// run compares the routes. Where they begin to differ it takes as many as there are more
// now for inserted, or less for removed; from there on it compares one with one. It
// reports false if the whole has to be decoded.
func (e *routeEdit) run(was, is fieldsOf, more int) bool {
	same := 0 // what was removed, or stands beside what was inserted, comes next
	old, now := was.find(fieldRoutes), is.find(fieldRoutes)
	for ; old.number != 0 && now.number != 0 && bytes.Equal(old.value, now.value); same++ {
		old, now = was.find(fieldRoutes), is.find(fieldRoutes)
	}
	e.routes = append(e.routes, e.was[:same]...)
	at := same
	for ; more < 0; more++ {
		e.gone = append(e.gone, e.was[at])
		old = was.find(fieldRoutes)
		at++
	}
	for ; more > 0; more-- {
		if !e.decode(now.value) {
			return false
		}
		now = is.find(fieldRoutes)
	}
	for ; now.number != 0; at++ {
		if bytes.Equal(old.value, now.value) {
			e.routes = append(e.routes, e.was[at])
		} else {
			e.gone = append(e.gone, e.was[at])
			if !e.decode(now.value) {
				return false
			}
			e.sameMatches = e.sameMatches && equalMatches(old.value, now.value)
		}
		old, now = was.find(fieldRoutes), is.find(fieldRoutes)
	}
	return true
}

// maxPatched bounds the routes that a patch decodes. If there are more of them, it is
// better to do it at one go, where they share what is equal.
const maxPatched = 256

// decode decodes a route that is new. It reports false if the whole has to be decoded:
// also if the route has overrides, since entries of one resource share those.
func (e *routeEdit) decode(raw []byte) bool {
	if e.p.decoded++; e.p.decoded > maxPatched {
		return false
	}
	pb, route := new(routepb.Route), new(Route)
	if !unmarshal(pb, raw) || !e.p.routes.route(nil, pb, route) || route.hasOverrides() {
		return false
	}
	e.come = append(e.come, route)
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

// fieldsOf goes through the fields of a message on the wire.
type fieldsOf struct {
	rest   []byte
	broken bool
}

// field is one of them, with its tag and length in whole. Its number is 0 after the last
// one.
type field struct {
	number       protowire.Number
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
	return field{number: found.Number, whole: whole, value: found.Value}
}

// find returns the next field of a number.
func (f *fieldsOf) find(number protowire.Number) field {
	found := f.next()
	for found.number != 0 && found.number != number {
		found = f.next()
	}
	return found
}

// without returns a message without the fields of a number, and how many those are. The
// count is below 0 if the message is broken.
func without(b []byte, number protowire.Number) (rest []byte, n int) {
	f := fields(b)
	for found := f.next(); found.number != 0; found = f.next() {
		if found.number == number {
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
	found := f.find(number)
	return found.value, found.number != 0 && f.find(number).number == 0
}

func unmarshal(pb proto.Message, b []byte) bool {
	return (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, pb) == nil
}
