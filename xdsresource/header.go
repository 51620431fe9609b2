//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"strconv"
	"strings"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/metadata"
)

// HeaderKind says what a HeaderMatcher asks of the header.
type HeaderKind int

// The kinds of HeaderMatcher.header_match_specifier. The deprecated ones that
// compare strings are a HeaderString like string_match.
const (
	// HeaderString asks that String matches the value.
	HeaderString HeaderKind = iota
	// HeaderRange asks for a decimal integer from Start up to, but not
	// including, End.
	HeaderRange
	// HeaderPresent asks that the header is there, if Present is set, or that
	// it is not.
	HeaderPresent
)

// HeaderMatcher is one condition on the headers of an RPC (gRFC A28). Several
// values of one header count as one, joined with ",". Headers whose names end
// in "-bin" are never there.
type HeaderMatcher struct {
	// Name is the name of the header in lower case.
	Name string
	Kind HeaderKind
	// String is for HeaderString.
	String StringMatcher
	// Start and End are for HeaderRange.
	Start, End int64
	// Present is for HeaderPresent.
	Present bool
	// Invert turns the result around. A header that is not there still does
	// not match a HeaderString or HeaderRange.
	Invert bool
	// MissingAsEmpty has a header that is not there taken for one with an
	// empty value (treat_missing_header_as_empty).
	MissingAsEmpty bool
}

func (v *validator) headerMatcher(at *path, pb *routepb.HeaderMatcher) HeaderMatcher {
	m := HeaderMatcher{
		Name:           v.intern(strings.ToLower(pb.GetName())),
		Invert:         pb.GetInvertMatch(),
		MissingAsEmpty: pb.GetTreatMissingHeaderAsEmpty(),
	}
	if m.Name == "" {
		v.fault(at.field("name"), "must not be empty")
	}
	switch specifier := pb.GetHeaderMatchSpecifier().(type) {
	case *routepb.HeaderMatcher_StringMatch:
		m.String = v.stringMatcher(at.field("string_match"), specifier.StringMatch)
	case *routepb.HeaderMatcher_ExactMatch:
		m.String = StringMatcher{Kind: StringExact, Value: specifier.ExactMatch}
	case *routepb.HeaderMatcher_PrefixMatch:
		m.String = v.stringPart(at.field("prefix_match"), StringPrefix, specifier.PrefixMatch, false)
	case *routepb.HeaderMatcher_SuffixMatch:
		m.String = v.stringPart(at.field("suffix_match"), StringSuffix, specifier.SuffixMatch, false)
	case *routepb.HeaderMatcher_ContainsMatch:
		m.String = v.stringPart(at.field("contains_match"), StringContains, specifier.ContainsMatch, false)
	case *routepb.HeaderMatcher_SafeRegexMatch:
		m.String = v.stringRegex(at.field("safe_regex_match"), specifier.SafeRegexMatch)
	case *routepb.HeaderMatcher_RangeMatch:
		m.Kind, m.Start, m.End = HeaderRange, specifier.RangeMatch.GetStart(), specifier.RangeMatch.GetEnd()
		if m.End < m.Start {
			v.fault(at.field("range_match"), "end %d is below start %d", m.End, m.Start)
		}
	case *routepb.HeaderMatcher_PresentMatch:
		m.Kind, m.Present = HeaderPresent, specifier.PresentMatch
	default:
		v.fault(at, "header_match_specifier must be set to a kind of match that this client knows")
	}
	return m
}

func (m *HeaderMatcher) matches(h *headers) bool {
	value, present := h.get(m.Name)
	if m.Kind == HeaderPresent {
		return (present == m.Present) != m.Invert
	}
	if !present && !m.MissingAsEmpty {
		return false
	}
	if m.Kind == HeaderRange {
		n, err := strconv.ParseInt(value, 10, 64)
		return (err == nil && m.Start <= n && n < m.End) != m.Invert
	}
	return m.String.Matches(value) != m.Invert
}

// headers looks up the headers of one RPC. The metadata are asked for when
// the first header is.
type headers struct {
	rpc    *RPC
	asked  bool
	values metadata.MD
}

func (rpc *RPC) metadata() metadata.MD {
	switch {
	case rpc.Metadata != nil:
		return rpc.Metadata()
	case rpc.Context != nil:
		md, _ := metadata.FromOutgoingContext(rpc.Context)
		return md
	default:
		return nil
	}
}

func (h *headers) get(name string) (value string, present bool) {
	if strings.HasSuffix(name, "-bin") {
		return "", false
	}
	if value, ok := h.rpc.builtin(name); ok {
		return value, value != ""
	}
	switch values := h.all(name); len(values) {
	case 0:
		return "", false
	case 1:
		return values[0], true
	default:
		return strings.Join(values, ","), true
	}
}

func (h *headers) all(name string) []string {
	if !h.asked {
		h.values, h.asked = h.rpc.metadata(), true
	}
	return h.values[name]
}

// builtin returns the headers that gRPC fills in itself, and reports whether
// name is one of them.
func (rpc *RPC) builtin(name string) (value string, ok bool) {
	switch name {
	case ":method":
		return "POST", true
	case ":path":
		return rpc.Method, true
	case ":authority", "host":
		return rpc.Authority, true
	case ":scheme":
		return rpc.scheme(), true
	case "content-type":
		if rpc.ContentType != "" {
			return rpc.ContentType, true
		}
		return "application/grpc", true
	default:
		return "", false
	}
}

func (rpc *RPC) scheme() string {
	if rpc.Scheme != "" {
		return rpc.Scheme
	}
	return "http"
}

// firstHeader returns the first value of a header, or "".
func firstHeader(rpc *RPC, name string) string {
	if strings.HasSuffix(name, "-bin") {
		return ""
	}
	if value, ok := rpc.builtin(name); ok {
		return value
	}
	if values := rpc.metadata()[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}
