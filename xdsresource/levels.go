package xdsresource

import (
	"encoding/base64"
	"slices"
	"strings"

	mutationpb "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// headerFields are the four fields for header edits that RouteConfiguration,
// VirtualHost, Route and ClusterWeight have in common.
type headerFields interface {
	GetRequestHeadersToAdd() []*corepb.HeaderValueOption
	GetRequestHeadersToRemove() []string
	GetResponseHeadersToAdd() []*corepb.HeaderValueOption
	GetResponseHeadersToRemove() []string
}

// headerMutations decodes the edits of one level and puts them where they
// belong among those of the levels above it, which it returns if pb has none.
// An edit that gRPC cannot carry out is left out, as it is no reason to do
// without the route.
func (r *routes) headerMutations(at *path, pb headerFields, above *HeaderMutations) *HeaderMutations {
	request := levelBuilder{v: r.v}
	request.remove(at, "request_headers_to_remove", pb.GetRequestHeadersToRemove())
	request.add(at, "request_headers_to_add", pb.GetRequestHeadersToAdd())
	response := levelBuilder{v: r.v, response: true}
	response.remove(at, "response_headers_to_remove", pb.GetResponseHeadersToRemove())
	response.add(at, "response_headers_to_add", pb.GetResponseHeadersToAdd())
	if len(request.edits)+len(response.edits) == 0 {
		return above
	}
	if above == nil {
		above = &HeaderMutations{}
	}
	return &HeaderMutations{
		Request:  r.order(request.level(), above.Request),
		Response: r.order(response.level(), above.Response),
	}
}

// order puts a level before those above it, or behind them if the most
// specific one is to win.
func (r *routes) order(level HeaderLevel, above HeaderEdits) HeaderEdits {
	if len(level) == 0 {
		return above
	}
	if r.mostSpecificWins {
		return slices.Concat(above, HeaderEdits{level})
	}
	return slices.Concat(HeaderEdits{level}, above)
}

// mirrorMutations decodes edits that are applied one after the other.
func (v *validator) mirrorMutations(at *path, pbs []*mutationpb.HeaderMutation) HeaderEdits {
	var edits HeaderEdits
	for i, pb := range pbs {
		at := at.item("request_headers_mutations", i)
		level := levelBuilder{v: v}
		switch action := pb.GetAction().(type) {
		case *mutationpb.HeaderMutation_Remove:
			level.removeOne(at.field("remove"), action.Remove)
		case *mutationpb.HeaderMutation_Append:
			level.addOne(at.field("append"), action.Append)
		default:
			v.ignore(at, "this client does not carry out the mutation %s", whichOneof(pb, "action"))
		}
		if len(level.edits) > 0 {
			edits = append(edits, level.level())
		}
	}
	return edits
}

// levelBuilder compiles the edits of one level. Within a level, as in Envoy,
// headers are removed first; whether a header is there is asked after that and
// once; then values are overwritten, and at last appended.
type levelBuilder struct {
	v        *validator
	response bool
	edits    []pendingEdit
	byName   map[string]int
}

type pendingEdit struct {
	name    string
	removed bool
	// ifPresent and ifAbsent are the last values to overwrite with.
	ifPresent, ifAbsent *string
	// appended are the values to append in any case, and alsoIfAbsent all
	// those to append if the header is not there.
	appended, alsoIfAbsent []string
}

func (b *levelBuilder) remove(at *path, field string, names []string) {
	for i, name := range names {
		b.removeOne(at.item(field, i), name)
	}
}

func (b *levelBuilder) removeOne(at *path, name string) {
	if e := b.edit(at, name); e != nil {
		e.removed = true
	}
}

func (b *levelBuilder) add(at *path, field string, options []*corepb.HeaderValueOption) {
	for i, option := range options {
		b.addOne(at.item(field, i), option)
	}
}

func (b *levelBuilder) addOne(at *path, pb *corepb.HeaderValueOption) {
	action := pb.GetAppendAction()
	if pb.GetAppend() != nil {
		if action != corepb.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD {
			b.v.ignore(at, "append and append_action are both set")
			return
		}
		if !pb.GetAppend().GetValue() {
			action = corepb.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
		}
	}
	value, why := headerValue(pb.GetHeader())
	if why != "" {
		b.v.ignore(at.field("header"), "%s: %s", quote(pb.GetHeader().GetKey()), why)
		return
	}
	if _, known := corepb.HeaderValueOption_HeaderAppendAction_name[int32(action)]; !known {
		b.v.ignore(at.field("append_action"), "the action %d is unknown", action)
		return
	}
	if value == "" && !pb.GetKeepEmptyValue() {
		return
	}
	if e := b.edit(at.field("header").field("key"), pb.GetHeader().GetKey()); e != nil {
		e.add(action, value)
	}
}

func (e *pendingEdit) add(action corepb.HeaderValueOption_HeaderAppendAction, value string) {
	switch action {
	case corepb.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD:
		e.appended = append(e.appended, value)
		e.alsoIfAbsent = append(e.alsoIfAbsent, value)
	case corepb.HeaderValueOption_ADD_IF_ABSENT:
		e.alsoIfAbsent = append(e.alsoIfAbsent, value)
	case corepb.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD:
		e.ifPresent, e.ifAbsent = &value, &value
	case corepb.HeaderValueOption_OVERWRITE_IF_EXISTS:
		e.ifPresent = &value
	}
}

// edit returns what is done to a header so far, or nil if the header cannot be
// edited. It is valid until the next call.
func (b *levelBuilder) edit(at *path, name string) *pendingEdit {
	name = strings.ToLower(name)
	if why := uneditable(name, b.response); why != "" {
		b.v.ignore(at, "%s %s", quote(name), why)
		return nil
	}
	i, ok := b.byName[name]
	if !ok {
		if b.byName == nil {
			b.byName = make(map[string]int)
		}
		i = len(b.edits)
		b.byName[name] = i
		b.edits = append(b.edits, pendingEdit{name: b.v.intern(name)})
	}
	return &b.edits[i]
}

func (b *levelBuilder) level() HeaderLevel {
	level := make(HeaderLevel, len(b.edits))
	for i := range b.edits {
		level[i] = b.edits[i].compile()
	}
	return level
}

func (e *pendingEdit) compile() HeaderEdit {
	c := HeaderEdit{
		Name:    e.name,
		Replace: e.removed || e.ifPresent != nil,
		Present: e.appended,
		Absent:  e.alsoIfAbsent,
	}
	if e.ifAbsent != nil {
		c.Absent = slices.Concat([]string{*e.ifAbsent}, c.Absent)
	}
	if e.ifPresent != nil {
		c.Present = slices.Concat([]string{*e.ifPresent}, c.Present)
	}
	if e.removed {
		c.Present = c.Absent
	}
	return c
}

// uneditable says why a header cannot be edited, or returns "".
func uneditable(name string, response bool) string {
	switch {
	case name == "":
		return "is no name of a header"
	case strings.HasPrefix(name, ":") || name == "host":
		return "is not for header edits; see host_rewrite_literal and prefix_rewrite"
	case strings.HasPrefix(name, "grpc-"):
		return "is a header of the gRPC protocol"
	}
	for i := range len(name) {
		c := name[i]
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.') {
			return "has a character that gRPC does not allow in names of headers"
		}
	}
	switch name {
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		return "is not a header of HTTP/2"
	case "content-type", "user-agent", "te":
		if !response {
			return "is filled in by gRPC"
		}
	}
	return ""
}

// headerValue returns the value to set, or says why there is none.
func headerValue(pb *corepb.HeaderValue) (value, why string) {
	text := pb.GetValue()
	if text == "" {
		text = string(pb.GetRawValue())
	}
	text, ok := literalFormat(text)
	if !ok {
		return "", "this client does not know command operators such as %REQ(name)% in values; write a percent sign as %%"
	}
	if strings.HasSuffix(strings.ToLower(pb.GetKey()), "-bin") {
		raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
		if err != nil {
			return "", "the value of a -bin header must be in base64"
		}
		return string(raw), ""
	}
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return "", "the value has a character that gRPC does not allow"
		}
	}
	return text, ""
}

// literalFormat returns what a format string stands for. It reports false if
// that depends on the RPC, or if the format is not valid.
func literalFormat(format string) (text string, ok bool) {
	if !strings.Contains(format, "%") {
		return format, true
	}
	text = strings.ReplaceAll(format, "%%", "")
	if strings.Contains(text, "%") {
		return "", false
	}
	return strings.ReplaceAll(format, "%%", "%"), true
}
