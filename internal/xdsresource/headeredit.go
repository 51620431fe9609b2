package xdsresource

import (
	"slices"

	"google.golang.org/grpc/metadata"
)

// HeaderMutations are the edits that a route makes to the metadata of its
// RPCs. Not both are empty.
type HeaderMutations struct {
	// Request is for the outgoing metadata.
	Request HeaderEdits
	// Response is for the response headers; for an RPC that ends without
	// them, such as a DirectResponse, for the trailers.
	Response HeaderEdits
}

// HeaderEdits are edits of several levels in the order in which they are
// applied: from the ClusterWeight over Route and VirtualHost to the
// RouteConfiguration, or, if most_specific_header_mutations_wins is set, the
// other way round. Routes share the levels above them.
type HeaderEdits []HeaderLevel

// HeaderLevel has one entry for each header that the level edits.
type HeaderLevel []HeaderEdit

// HeaderEdit is all that a level does to one header. What that is depends
// only on whether the header is there before.
type HeaderEdit struct {
	// Name is in lower case. It is never that of a pseudo header, "host", or
	// one that starts with "grpc-", nor, in requests, one that gRPC itself
	// fills in.
	Name string
	// Replace has the values that the header has removed, before Present is
	// appended.
	Replace bool
	// Present is appended if the header is there, Absent if it is not. Values
	// of headers whose names end in "-bin" are decoded, as in metadata.
	Present, Absent []string
}

// Apply edits md. The caller must own md and the slices in it.
func (e HeaderEdits) Apply(md metadata.MD) {
	for _, level := range e {
		for i := range level {
			level[i].apply(md)
		}
	}
}

func (e *HeaderEdit) apply(md metadata.MD) {
	old, add := md[e.Name], e.Absent
	if len(old) > 0 {
		add = e.Present
		if e.Replace {
			old = nil
		}
	}
	if len(old)+len(add) == 0 {
		delete(md, e.Name)
		return
	}
	if len(add) > 0 {
		md[e.Name] = slices.Concat(old, add)
	}
}

// HeadersFor returns the edits for RPCs that go to c, an entry of the route's
// Forward, or, if c is nil, for RPCs that go nowhere. The result may be nil.
func (r *Route) HeadersFor(c *WeightedCluster) *HeaderMutations {
	if c != nil && c.Headers != nil {
		return c.Headers
	}
	return r.Headers
}
