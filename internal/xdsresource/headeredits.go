//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"cmp"
	"slices"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/headeredit"
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
// other way round. A level has one edit for each header. Routes share the levels above them.
//
// No edit is of a pseudo header, "host", or a header that starts with "grpc-", nor, in requests, of one that gRPC itself
// fills in.
type HeaderEdits []headeredit.Edits

// Apply edits md. The caller must own md and the slices in it.
func (e HeaderEdits) Apply(md metadata.MD) {
	for _, level := range e {
		level.Apply(md)
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

// headerFields are the four fields for header edits that RouteConfiguration,
// VirtualHost, Route and ClusterWeight have in common.
type headerFields interface {
	GetRequestHeadersToAdd() []*corepb.HeaderValueOption
	GetRequestHeadersToRemove() []string
	GetResponseHeadersToAdd() []*corepb.HeaderValueOption
	GetResponseHeadersToRemove() []string
}

// headerMutations decodes the edits of one level and merges them with those of the levels
// above it, which it returns if pb has none. Edits that gRPC cannot make are ignored rather
// than errors, since the route is useful without them.
func (d *routeDecoder) headerMutations(at *faults.Path, pb headerFields, above *HeaderMutations) *HeaderMutations {
	request := slices.Concat(
		headerEdits(d, at, headeredit.Request, "request_headers_to_remove", pb.GetRequestHeadersToRemove(), headeredit.Removal),
		headerEdits(d, at, headeredit.Request, "request_headers_to_add", pb.GetRequestHeadersToAdd(), headeredit.FromOption))
	response := slices.Concat(
		headerEdits(d, at, headeredit.Response, "response_headers_to_remove", pb.GetResponseHeadersToRemove(), headeredit.Removal),
		headerEdits(d, at, headeredit.Response, "response_headers_to_add", pb.GetResponseHeadersToAdd(), headeredit.FromOption))
	if len(request)+len(response) == 0 {
		return above
	}
	above = cmp.Or(above, &HeaderMutations{})
	return &HeaderMutations{
		Request:  d.order(levelOf(request), above.Request),
		Response: d.order(levelOf(response), above.Response),
	}
}

// order puts a level before those above it, or after them if the most specific level
// wins.
func (d *routeDecoder) order(level headeredit.Edits, above HeaderEdits) HeaderEdits {
	if len(level) == 0 {
		return above
	}
	if d.mostSpecificWins {
		return slices.Concat(above, HeaderEdits{level})
	}
	return slices.Concat(HeaderEdits{level}, above)
}

// headerEdits reads the edits in a field. Those that gRPC cannot make are ignored.
func headerEdits[P any](
	d *routeDecoder, at *faults.Path, side headeredit.Side, field string, pbs []P, read func(headeredit.Side, P) (headeredit.Edit, error),
) (edits headeredit.Edits) {
	if !d.atMost(at.Field(field), len(pbs), bounds.HeaderEdits) {
		return nil
	}
	for i, pb := range pbs {
		edit, err := read(side, pb)
		if err != nil {
			d.ignore(at.Item(field, i), "%v", err)
			continue
		}
		edit.Name = d.intern(edit.Name)
		edits = append(edits, edit)
	}
	return edits
}

// levelOf makes one edit of those for each header. Within a level, as in Envoy, headers are
// removed first; then it is determined, once, which headers are present; then values are
// overwritten, of which the last one counts, and finally appended.
func levelOf(edits headeredit.Edits) headeredit.Edits {
	var level headeredit.Edits
	of := make(map[string]int, len(edits))
	for _, one := range edits {
		i, known := of[one.Name]
		if !known {
			i = len(level)
			of[one.Name], level = i, append(level, headeredit.Edit{Name: one.Name})
		}
		if e := &level[i]; one.Replace {
			e.Replace = true
			if one.Present != nil {
				e.Present = one.Present
			}
			if one.Absent != nil {
				e.Absent = one.Absent
			}
		}
	}
	for _, one := range edits {
		if e := &level[of[one.Name]]; !one.Replace {
			e.Present, e.Absent = append(e.Present, one.Present...), append(e.Absent, one.Absent...)
		}
	}
	for _, one := range edits {
		if e := &level[of[one.Name]]; one.Replace && one.Present == nil {
			e.Present = e.Absent // The header is removed, and so absent.
		}
	}
	return level
}
