//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"slices"

	mutationpb "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
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
	request := levelBuilder{validator: d.validator}
	request.remove(at, "request_headers_to_remove", pb.GetRequestHeadersToRemove())
	request.add(at, "request_headers_to_add", pb.GetRequestHeadersToAdd())
	response := levelBuilder{validator: d.validator, side: headeredit.Response}
	response.remove(at, "response_headers_to_remove", pb.GetResponseHeadersToRemove())
	response.add(at, "response_headers_to_add", pb.GetResponseHeadersToAdd())
	if len(request.edits)+len(response.edits) == 0 {
		return above
	}
	if above == nil {
		above = &HeaderMutations{}
	}
	return &HeaderMutations{
		Request:  d.order(request.level(), above.Request),
		Response: d.order(response.level(), above.Response),
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

// mirrorMutations decodes edits that are applied one after the other.
func (d *routeDecoder) mirrorMutations(at *faults.Path, pbs []*mutationpb.HeaderMutation) HeaderEdits {
	if !d.atMost(at.Field("request_headers_mutations"), len(pbs), bounds.HeaderEdits) {
		return nil
	}
	var edits HeaderEdits
	for i, pb := range pbs {
		at := at.Item("request_headers_mutations", i)
		level := levelBuilder{validator: d.validator}
		switch action := pb.GetAction().(type) {
		case *mutationpb.HeaderMutation_Remove:
			level.removeOne(at.Field("remove"), action.Remove)
		case *mutationpb.HeaderMutation_Append:
			level.addOne(at.Field("append"), action.Append)
		default:
			d.ignore(at, "this client does not carry out the mutation %s", whichOneof(pb, "action"))
		}
		if len(level.edits) > 0 {
			edits = append(edits, level.level())
		}
	}
	return edits
}

// levelBuilder has the edits of one level, one for each entry of its lists. Those that remove a header have no values.
type levelBuilder struct {
	*validator
	side  headeredit.Side
	edits headeredit.Edits
}

func (b *levelBuilder) remove(at *faults.Path, field string, names []string) {
	if !b.atMost(at.Field(field), len(names), bounds.HeaderEdits) {
		return
	}
	for i, name := range names {
		b.removeOne(at.Item(field, i), name)
	}
}

func (b *levelBuilder) removeOne(at *faults.Path, name string) {
	if name, ok := b.name(at, name); ok {
		b.edits = append(b.edits, headeredit.Remove(name))
	}
}

func (b *levelBuilder) add(at *faults.Path, field string, options []*corepb.HeaderValueOption) {
	if !b.atMost(at.Field(field), len(options), bounds.HeaderEdits) {
		return
	}
	for i, option := range options {
		b.addOne(at.Item(field, i), option)
	}
}

func (b *levelBuilder) addOne(at *faults.Path, pb *corepb.HeaderValueOption) {
	action, err := headeredit.Action(pb)
	if err != nil {
		b.ignore(at, "%v", err)
		return
	}
	name, ok := b.name(at.Field("header").Field("key"), pb.GetHeader().GetKey())
	if !ok {
		return
	}
	value, err := headeredit.Value(name, pb.GetHeader())
	if err != nil {
		b.ignore(at.Field("header"), "%v", err)
		return
	}
	edit, err := headeredit.Set(name, value, action)
	if err != nil {
		b.ignore(at.Field("append_action"), "%v", err)
	} else if value != "" || pb.GetKeepEmptyValue() {
		b.edits = append(b.edits, edit)
	}
}

// name returns the name of a header in lower case. It reports false if the
// header cannot be edited.
func (b *levelBuilder) name(at *faults.Path, key string) (name string, ok bool) {
	name, err := headeredit.Name(b.side, key)
	if err != nil {
		b.ignore(at, "%v", err)
	}
	return b.intern(name), err == nil
}

// level makes one edit of those for each header. Within a level, as in Envoy, headers are
// removed first; then it is determined, once, which headers are present; then values are
// overwritten, of which the last one counts, and finally appended.
func (b *levelBuilder) level() headeredit.Edits {
	var level headeredit.Edits
	of := make(map[string]int, len(b.edits))
	for _, one := range b.edits {
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
	for _, one := range b.edits {
		if e := &level[of[one.Name]]; !one.Replace {
			e.Present, e.Absent = append(e.Present, one.Present...), append(e.Absent, one.Absent...)
		}
	}
	for _, one := range b.edits {
		if e := &level[of[one.Name]]; one.Replace && one.Present == nil {
			e.Present = e.Absent // The header is removed, and so absent.
		}
	}
	return level
}
