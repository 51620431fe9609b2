//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/dynxds/dynxds/internal/matching"
)

func (v *validator) routeMatch(at *path, pb *routepb.RouteMatch) matching.Route {
	m := matching.Route{CaseInsensitive: pb.GetCaseSensitive() != nil && !pb.GetCaseSensitive().GetValue()}
	switch specifier := pb.GetPathSpecifier().(type) {
	case *routepb.RouteMatch_Prefix:
		m.Path = specifier.Prefix
	case *routepb.RouteMatch_Path:
		m.PathKind, m.Path = matching.PathExact, specifier.Path
	case *routepb.RouteMatch_SafeRegex:
		m.PathKind, m.Regex = matching.PathRegex, v.regex(at.field("safe_regex"), specifier.SafeRegex)
	case *routepb.RouteMatch_PathSeparatedPrefix:
		m.PathKind, m.Path = matching.PathSeparatedPrefix, specifier.PathSeparatedPrefix
		if m.Path == "" || strings.HasSuffix(m.Path, "/") || strings.ContainsAny(m.Path, "?#") {
			v.fault(at.field("path_separated_prefix"), "%s must not be empty, end in / or have ? or # in it", quote(m.Path))
		}
	default:
		v.fault(at, "path_specifier must be prefix, path, path_separated_prefix or safe_regex, is %s", whichOneof(pb, "path_specifier"))
	}
	if params := pb.GetQueryParameters(); len(params) > 0 {
		m.Query = make([]matching.Query, len(params))
		for i, q := range params {
			m.Query[i] = v.queryMatcher(at.item("query_parameters", i), q)
		}
	}
	if headers := pb.GetHeaders(); len(headers) > 0 {
		m.Headers = make([]matching.Header, len(headers))
		for i, h := range headers {
			m.Headers[i] = v.headerMatcher(at.item("headers", i), h)
		}
	}
	if fraction := pb.GetRuntimeFraction(); fraction != nil {
		m.FractionPerMillion = v.fraction(at.field("runtime_fraction"), fraction)
	}
	return m
}

func (v *validator) fraction(at *path, pb *corepb.RuntimeFractionalPercent) *uint32 {
	at = at.field("default_value")
	percent := pb.GetDefaultValue()
	if percent == nil {
		v.fault(at, "must be set; this client has no runtime to look up runtime_key in")
		return nil
	}
	n := uint64(percent.GetNumerator())
	switch percent.GetDenominator() {
	case typepb.FractionalPercent_HUNDRED:
		n *= matching.Million / 100
	case typepb.FractionalPercent_TEN_THOUSAND:
		n *= matching.Million / 10_000
	case typepb.FractionalPercent_MILLION:
	default:
		v.fault(at.field("denominator"), "is the unknown value %d", percent.GetDenominator())
	}
	perMillion := uint32(min(n, matching.Million))
	return &perMillion
}

func (v *validator) headerMatcher(at *path, pb *routepb.HeaderMatcher) matching.Header {
	m := matching.Header{
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
		m.String = matching.String{Kind: matching.StringExact, Value: specifier.ExactMatch}
	case *routepb.HeaderMatcher_PrefixMatch:
		m.String = v.stringPart(at.field("prefix_match"), matching.StringPrefix, specifier.PrefixMatch, false)
	case *routepb.HeaderMatcher_SuffixMatch:
		m.String = v.stringPart(at.field("suffix_match"), matching.StringSuffix, specifier.SuffixMatch, false)
	case *routepb.HeaderMatcher_ContainsMatch:
		m.String = v.stringPart(at.field("contains_match"), matching.StringContains, specifier.ContainsMatch, false)
	case *routepb.HeaderMatcher_SafeRegexMatch:
		m.String = v.stringRegex(at.field("safe_regex_match"), specifier.SafeRegexMatch)
	case *routepb.HeaderMatcher_RangeMatch:
		m.Kind, m.Start, m.End = matching.HeaderRange, specifier.RangeMatch.GetStart(), specifier.RangeMatch.GetEnd()
		if m.End < m.Start {
			v.fault(at.field("range_match"), "end %d is below start %d", m.End, m.Start)
		}
	case *routepb.HeaderMatcher_PresentMatch:
		m.Kind, m.Present = matching.HeaderPresent, specifier.PresentMatch
	default:
		v.fault(at, "header_match_specifier must be set to a kind of match that this client knows")
	}
	return m
}

func (v *validator) queryMatcher(at *path, pb *routepb.QueryParameterMatcher) matching.Query {
	m := matching.Query{Name: pb.GetName(), Present: true}
	if m.Name == "" {
		v.fault(at.field("name"), "must not be empty")
	}
	switch specifier := pb.GetQueryParameterMatchSpecifier().(type) {
	case *routepb.QueryParameterMatcher_StringMatch:
		s := v.stringMatcher(at.field("string_match"), specifier.StringMatch)
		m.String = &s
	case *routepb.QueryParameterMatcher_PresentMatch:
		m.Present = specifier.PresentMatch
	}
	return m
}

func (v *validator) stringMatcher(at *path, pb *matcherpb.StringMatcher) matching.String {
	ignoreCase := pb.GetIgnoreCase()
	switch pattern := pb.GetMatchPattern().(type) {
	case *matcherpb.StringMatcher_Exact:
		return matching.NewString(matching.StringExact, pattern.Exact, ignoreCase)
	case *matcherpb.StringMatcher_Prefix:
		return v.stringPart(at.field("prefix"), matching.StringPrefix, pattern.Prefix, ignoreCase)
	case *matcherpb.StringMatcher_Suffix:
		return v.stringPart(at.field("suffix"), matching.StringSuffix, pattern.Suffix, ignoreCase)
	case *matcherpb.StringMatcher_Contains:
		return v.stringPart(at.field("contains"), matching.StringContains, pattern.Contains, ignoreCase)
	case *matcherpb.StringMatcher_SafeRegex:
		return v.stringRegex(at.field("safe_regex"), pattern.SafeRegex)
	default:
		v.fault(at, "match_pattern must be exact, prefix, suffix, contains or safe_regex, is %s", whichOneof(pb, "match_pattern"))
		return matching.String{}
	}
}

// stringPart decodes a pattern for a part of a string. An empty one would
// match everything, which cannot be what was meant.
func (v *validator) stringPart(at *path, kind matching.StringKind, value string, ignoreCase bool) matching.String {
	if value == "" {
		v.fault(at, "must not be empty")
	}
	return matching.NewString(kind, value, ignoreCase)
}

func (v *validator) stringRegex(at *path, pb *matcherpb.RegexMatcher) matching.String {
	return matching.String{Kind: matching.StringRegex, Regex: v.regex(at, pb).Regexp}
}
