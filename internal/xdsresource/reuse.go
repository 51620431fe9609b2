package xdsresource

import (
	"bytes"

	"github.com/dynxds/dynxds/xdsclient"
)

// A RouteConfiguration may have ten thousand routes, of which an update changes one. Routes that have the bytes of a
// route of the last version are used again: they are neither read nor compiled, and keep their memory.

// lastRoutes is the last version of the RouteConfiguration that is being decoded. nil: there is none.
type lastRoutes struct {
	// hosts are by their bytes without routes.
	hosts     map[string]lastHost
	regexCost int
	// overridden says that the new version has an override of a filter that was decoded anew.
	overridden bool
}

// lastHost is a virtual host of the last version, and its bytes.
type lastHost struct {
	*VirtualHost
	raw []byte
}

// lastRoutesOf returns the last version of a RouteConfiguration that is head without its virtual hosts. It returns nil if
// what is said for all virtual hosts differs, or if something of the last version was ignored, which would have to be
// found again.
func lastRoutesOf(o xdsclient.DecodeOptions, head []byte) *lastRoutes {
	rc, ok := o.Last.(*RouteConfiguration)
	if !ok || len(rc.Ignored) > 0 {
		return nil
	}
	if before, n := without(o.LastBytes, fieldVirtualHosts); n != len(rc.VirtualHosts) || !bytes.Equal(before, head) {
		return nil
	}
	last := &lastRoutes{hosts: make(map[string]lastHost, len(rc.VirtualHosts)), regexCost: rc.regexCost}
	list := fields(o.LastBytes)
	for _, vh := range rc.VirtualHosts {
		raw := list.nextOf(fieldVirtualHosts).value
		if rest, n := without(raw, fieldRoutes); n == len(vh.Routes) {
			last.hosts[string(rest)] = lastHost{vh, raw}
		}
	}
	return last
}

// host returns the virtual host with the same settings, or one without a VirtualHost.
func (l *lastRoutes) host(part hostPart) lastHost {
	if l == nil {
		return lastHost{}
	}
	return l.hosts[string(part.rest)]
}

// routesIn returns the n routes of a virtual host on the wire.
func routesIn(raw []byte, n int) [][]byte {
	routes := make([][]byte, n)
	list := fields(raw)
	for i := range routes {
		routes[i] = list.nextOf(fieldRoutes).value
	}
	return routes
}

// equalEnds returns how many elements a and b both start with, and how many of the others they both end with.
func equalEnds(a, b [][]byte) (start, end int) {
	n := min(len(a), len(b))
	for start < n && bytes.Equal(a[start], b[start]) {
		start++
	}
	for end < n-start && bytes.Equal(a[len(a)-1-end], b[len(b)-1-end]) {
		end++
	}
	return start, end
}

// between returns the routes without so many at the start and at the end. raw has the bytes of all.
func (h lastHost) between(raw [][]byte, first, last int) *knownRoutes {
	known := &knownRoutes{routes: make(map[string]*Route, len(raw)-first-last)}
	for i := first; i < len(raw)-last; i++ {
		known.routes[string(known.key(raw[i]))] = h.Routes[i]
	}
	return known
}

// knownRoutes finds routes by their bytes without metadata, which say where a route was written.
type knownRoutes struct {
	routes map[string]*Route
	buffer []byte
}

func (k *knownRoutes) find(raw []byte) *Route { return k.routes[string(k.key(raw))] }

// key returns the bytes of a route without its metadata. It is valid until the next call.
func (k *knownRoutes) key(raw []byte) []byte {
	k.buffer = k.buffer[:0]
	f := fields(raw)
	for found := f.next(); found.number != 0; found = f.next() {
		if found.number != fieldMetadata {
			k.buffer = append(k.buffer, found.whole...)
		}
	}
	if f.broken {
		return raw
	}
	return k.buffer
}

// mayReplace reports whether a version that was decoded with the help of the last one is what decoding it alone gives:
// what is ignored is listed in order of the whole, and routes with equal overrides share one.
func (l *lastRoutes) mayReplace(rc *RouteConfiguration) bool {
	return len(rc.Ignored) == 0 && !l.overridden
}
