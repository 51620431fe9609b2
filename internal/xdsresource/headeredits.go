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
// other way round. Routes share the levels above them.
type HeaderEdits []HeaderLevel

// HeaderLevel has one entry for each header that the level edits.
type HeaderLevel []HeaderEdit

// HeaderEdit is everything that a level does to one header. It depends only on whether the
// header is present before.
type HeaderEdit struct {
	// Name is in lower case. It is never that of a pseudo header, "host", or
	// one that starts with "grpc-", nor, in requests, one that gRPC itself
	// fills in.
	Name string
	// Replace says that the values that the header has are removed before Present is
	// appended.
	Replace bool
	// Present is appended if the header is present, Absent if it is not. Values of
	// headers whose names end in "-bin" are decoded, as in metadata.
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
func (d *routeDecoder) order(level HeaderLevel, above HeaderEdits) HeaderEdits {
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

// levelBuilder compiles the edits of one level. Within a level, as in Envoy, headers are
// removed first; then it is determined, once, which headers are present; then values are
// overwritten, and finally appended.
type levelBuilder struct {
	*validator
	side   headeredit.Side
	edits  []pendingEdit
	byName map[string]int
}

// pendingEdit is an edit so far. A value that overwrites is the first of Present or Absent; the last such value counts.
type pendingEdit struct {
	HeaderEdit
	removed   bool
	addsFirst bool // the first of Absent overwrites; Replace says so of Present
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
		b.edit(name).removed = true
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
	if _, known := corepb.HeaderValueOption_HeaderAppendAction_name[int32(action)]; !known {
		b.ignore(at.Field("append_action"), "the action %d is unknown", action)
		return
	}
	if value != "" || pb.GetKeepEmptyValue() {
		b.edit(name).add(action, value)
	}
}

func (e *pendingEdit) add(action corepb.HeaderValueOption_HeaderAppendAction, value string) {
	switch action {
	case corepb.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD:
		e.Present, e.Absent = append(e.Present, value), append(e.Absent, value)
	case corepb.HeaderValueOption_ADD_IF_ABSENT:
		e.Absent = append(e.Absent, value)
	case corepb.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD:
		overwrite(&e.Present, &e.Replace, value)
		overwrite(&e.Absent, &e.addsFirst, value)
	case corepb.HeaderValueOption_OVERWRITE_IF_EXISTS:
		overwrite(&e.Present, &e.Replace, value)
	}
}

// overwrite makes value the first of the values, in place of the one that is, if any.
func overwrite(values *[]string, first *bool, value string) {
	if *first {
		*values = (*values)[1:]
	}
	*values, *first = slices.Insert(*values, 0, value), true
}

// name returns the name of a header in lower case. It reports false if the
// header cannot be edited.
func (b *levelBuilder) name(at *faults.Path, key string) (name string, ok bool) {
	name, err := headeredit.Name(b.side, key)
	if err != nil {
		b.ignore(at, "%v", err)
	}
	return name, err == nil
}

// edit returns the edit of a header so far. It is valid until the next call.
func (b *levelBuilder) edit(name string) *pendingEdit {
	i, ok := b.byName[name]
	if !ok {
		if b.byName == nil {
			b.byName = make(map[string]int)
		}
		i = len(b.edits)
		b.byName[name] = i
		b.edits = append(b.edits, pendingEdit{HeaderEdit: HeaderEdit{Name: b.intern(name)}})
	}
	return &b.edits[i]
}

func (b *levelBuilder) level() HeaderLevel {
	level := make(HeaderLevel, len(b.edits))
	for i, e := range b.edits {
		if e.removed {
			e.Replace, e.Present = true, e.Absent
		}
		level[i] = e.HeaderEdit
	}
	return level
}
