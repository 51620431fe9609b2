// Package headeredit has Envoy's header edits, for HTTP filters and for routes, whose edits of one header xdsresource joins.
// An edit that gRPC does not support is left out and reported; it does not make the resource invalid.
package headeredit

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	mutationpb "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/internal/matching"
)

// Side is the side whose metadata an edit changes.
type Side int

// The sides.
const (
	Request Side = iota
	Response
)

// Edit is everything that is done to one header. It depends only on whether the header is present before.
type Edit struct {
	Name string // in lower case
	// Replace says that the values that the header has are removed before Present is appended.
	Replace bool
	// Present is appended if the header is present, Absent if it is not. Values of headers whose names end in "-bin" are decoded, as in
	// metadata.
	Present, Absent []string
}

// Apply edits md. The caller owns md and its slices.
func (e *Edit) Apply(md metadata.MD) {
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

// Edits are applied one after the other.
type Edits []Edit

// Apply edits md. The caller owns md and its slices.
func (e Edits) Apply(md metadata.MD) {
	for i := range e {
		e[i].Apply(md)
	}
}

// Outgoing returns ctx with edited outgoing metadata, or ctx itself if there are no edits.
func Outgoing[S interface {
	~[]E
	Apply(metadata.MD)
}, E any](ctx context.Context, edits S) context.Context {
	if len(edits) == 0 {
		return ctx
	}
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	if md == nil {
		md = metadata.MD{}
	}
	edits.Apply(md)
	return metadata.NewOutgoingContext(ctx, md)
}

// FromMutation reads a HeaderMutation. It fails if gRPC does not support the edit, or it is none of one header.
func FromMutation(side Side, pb *mutationpb.HeaderMutation) (Edit, error) {
	switch action := pb.GetAction().(type) {
	case *mutationpb.HeaderMutation_Remove:
		return Removal(side, action.Remove)
	case *mutationpb.HeaderMutation_Append:
		return FromOption(side, action.Append)
	default:
		return Edit{}, errors.New("the action is not set to one that this client knows")
	}
}

// FromOptions reads a list of HeaderValueOption. ignored describes those that are left out.
func FromOptions(side Side, options []*corepb.HeaderValueOption) (edits Edits, ignored []string) {
	for _, option := range options {
		edit, err := FromOption(side, option)
		if err != nil {
			ignored = append(ignored, err.Error())
			continue
		}
		edits = append(edits, edit)
	}
	return edits, ignored
}

// FromOption reads a HeaderValueOption. It fails if gRPC does not support the edit.
func FromOption(side Side, pb *corepb.HeaderValueOption) (Edit, error) {
	name, err := Name(side, pb.GetHeader().GetKey())
	if err != nil {
		return Edit{}, err
	}
	value, err := Value(name, pb.GetHeader())
	if err != nil {
		return Edit{}, err
	}
	action, err := actionOf(pb)
	if err != nil {
		return Edit{}, fmt.Errorf("header %q: %w", name, err)
	}
	if value == "" && !pb.GetKeepEmptyValue() {
		return Edit{}, fmt.Errorf("header %q: the value is empty, and keep_empty_value is not set", name)
	}
	return Set(name, value, action)
}

// Set returns the edit that sets a header, whose name and value are those of metadata.
func Set(name, value string, action corepb.HeaderValueOption_HeaderAppendAction) (Edit, error) {
	values := []string{value}
	switch action {
	case corepb.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD:
		return Edit{Name: name, Present: values, Absent: values}, nil
	case corepb.HeaderValueOption_ADD_IF_ABSENT:
		return Edit{Name: name, Absent: values}, nil
	case corepb.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD:
		return Edit{Name: name, Replace: true, Present: values, Absent: values}, nil
	case corepb.HeaderValueOption_OVERWRITE_IF_EXISTS:
		return Edit{Name: name, Replace: true, Present: values}, nil
	default:
		return Edit{}, fmt.Errorf("header %q: append_action %v is not known", name, action)
	}
}

// actionOf returns append_action, or what the deprecated append stands for.
func actionOf(pb *corepb.HeaderValueOption) (corepb.HeaderValueOption_HeaderAppendAction, error) {
	action := pb.GetAppendAction()
	//lint:ignore SA1019 Control planes still send it.
	switch old := pb.GetAppend(); {
	case old == nil:
	case action != corepb.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD:
		return 0, errors.New("append and append_action are both set")
	case !old.GetValue():
		action = corepb.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
	}
	return action, nil
}

// Remove returns the edit that removes a header. The name is in lower case, as in metadata.
func Remove(name string) Edit { return Edit{Name: name, Replace: true} }

// Removal reads the name of a header that is removed. It fails if the header cannot be edited.
func Removal(side Side, key string) (Edit, error) {
	name, err := Name(side, key)
	return Remove(name), err
}

// Name returns the name of a header in lower case. It fails if the header cannot be edited.
func Name(side Side, key string) (string, error) {
	name := strings.ToLower(key)
	why := ""
	switch {
	case name == "":
		why = "a header needs a name"
	case strings.HasPrefix(name, ":") || name == "host":
		why = "pseudo headers cannot be edited; routes have rewrites for path and host"
	case strings.HasPrefix(name, "grpc-"):
		why = "headers of the gRPC protocol cannot be edited"
	case strings.ContainsFunc(name, notInNames):
		why = "gRPC does not allow a character in the name"
	case slices.Contains(connectionHeaders, name):
		why = "HTTP/2 does not have this header"
	case side == Request && (name == "content-type" || name == "user-agent" || name == "te"):
		why = "gRPC fills this header in"
	}
	if why != "" {
		return "", fmt.Errorf("header %q: %s", key, why)
	}
	return name, nil
}

// connectionHeaders make an HTTP/2 message malformed (RFC 9113, 8.2.2).
var connectionHeaders = []string{"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}

func notInNames(r rune) bool {
	return !('a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-' || r == '_' || r == '.')
}

// Value returns the value of a header in the form of metadata. It fails if gRPC cannot send
// it. name is in lower case.
func Value(name string, pb *corepb.HeaderValue) (string, error) {
	text := cmp.Or(pb.GetValue(), string(pb.GetRawValue()))
	if strings.Contains(strings.ReplaceAll(text, "%%", ""), "%") {
		return "", fmt.Errorf("header %q: command operators such as %%REQ(name)%% are not known in values; write a percent sign as %%%%", name)
	}
	return Metadata(name, strings.ReplaceAll(text, "%%", "%"))
}

// Metadata returns the value of a header, which in messages is in base64 if it is binary, in the form of metadata. It fails if gRPC
// cannot send it.
func Metadata(name, text string) (string, error) {
	if strings.HasSuffix(name, "-bin") {
		raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
		if err != nil {
			return "", fmt.Errorf("header %q: the value of a -bin header must be in base64", name)
		}
		return string(raw), nil
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", fmt.Errorf("header %q: gRPC does not allow a character in the value", name)
	}
	return text, nil
}

// NameMatcher reads a StringMatcher for names of headers, which are in lower case. regexCost is as total of matching.CompileRegex.
func NameMatcher(pb *matcherpb.StringMatcher, regexCost *int) (m matching.String, err error) {
	fold := pb.GetIgnoreCase()
	switch pattern := pb.GetMatchPattern().(type) {
	case *matcherpb.StringMatcher_Exact:
		return matching.NewString(matching.StringExact, pattern.Exact, fold), nil
	case *matcherpb.StringMatcher_Prefix:
		return matching.NewString(matching.StringPrefix, pattern.Prefix, fold), nil
	case *matcherpb.StringMatcher_Suffix:
		return matching.NewString(matching.StringSuffix, pattern.Suffix, fold), nil
	case *matcherpb.StringMatcher_Contains:
		return matching.NewString(matching.StringContains, pattern.Contains, fold), nil
	case *matcherpb.StringMatcher_SafeRegex:
		re, err := matching.CompileRegex(pattern.SafeRegex.GetRegex(), true, regexCost)
		if err != nil {
			return m, fmt.Errorf("safe_regex.regex %w", err)
		}
		return matching.String{Kind: matching.StringRegex, Regex: re.Regexp}, nil
	default:
		return m, errors.New("must be set to a kind of match that this client knows")
	}
}
