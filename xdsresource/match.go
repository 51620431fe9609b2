package xdsresource

import (
	"context"
	"math/rand/v2"
	"regexp"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/metadata"
)

// RPC is what routes are matched against.
type RPC struct {
	// Method is the full method, "/package.Service/Method". It may have a
	// query, which only RouteMatch.Query and the header :path see.
	Method string
	// Authority is the header :authority, "host:port" of the channel or of
	// grpc.CallAuthority. Empty: headers :authority and host are not there.
	Authority string
	// Scheme is the header :scheme, "http" or "https". Empty: "http".
	Scheme string
	// Context holds the outgoing metadata. They are copied out of it at most
	// once, and only when a route that otherwise fits looks at a header. nil:
	// there are none.
	Context context.Context
	// Metadata, if not nil, is asked for the metadata in the place of Context.
	// Keys are in lower case. A closure costs its caller an allocation, which
	// Context does not.
	Metadata func() metadata.MD
	// ContentType is the content-type header. Empty: "application/grpc".
	ContentType string
	// Random returns random numbers for runtime_fraction; it is called only
	// when a route that otherwise fits has one. nil: math/rand/v2.Uint64.
	Random func() uint64
}

// PathKind says how a RouteMatch looks at the method.
type PathKind int

// The kinds of RouteMatch.path_specifier.
const (
	// PathPrefix matches methods that start with Path. Here and below the
	// query of a method, if it has one, does not count as part of it.
	PathPrefix PathKind = iota
	// PathExact matches the one method Path.
	PathExact
	// PathRegex matches methods that as a whole match Regex.
	PathRegex
	// PathSeparatedPrefix matches the method Path and methods that start with
	// Path and a "/".
	PathSeparatedPrefix
)

// RouteMatch says which RPCs a route is for: those for which path, headers
// and fraction all match. The zero RouteMatch matches every RPC.
type RouteMatch struct {
	PathKind PathKind
	// Path is the path or prefix as configured.
	Path string
	// Regex is set if PathKind is PathRegex, and matches only a whole path.
	Regex *regexp.Regexp
	// CaseInsensitive has Path compared without regard to the case of ASCII
	// letters (case_sensitive: false). Regex is not concerned.
	CaseInsensitive bool
	// Headers and Query all have to match.
	Headers []HeaderMatcher
	Query   []QueryMatcher
	// FractionPerMillion is the share of otherwise matching RPCs that match
	// (runtime_fraction.default_value; runtime_key is ignored, gRFC A28).
	// nil: all.
	FractionPerMillion *uint32

	// regexPrefix starts every path that Regex matches.
	regexPrefix string
}

const million = 1_000_000

func (v *validator) routeMatch(at *path, pb *routepb.RouteMatch) RouteMatch {
	m := RouteMatch{CaseInsensitive: pb.GetCaseSensitive() != nil && !pb.GetCaseSensitive().GetValue()}
	switch specifier := pb.GetPathSpecifier().(type) {
	case *routepb.RouteMatch_Prefix:
		m.Path = specifier.Prefix
	case *routepb.RouteMatch_Path:
		m.PathKind, m.Path = PathExact, specifier.Path
	case *routepb.RouteMatch_SafeRegex:
		re := v.regex(at.field("safe_regex"), specifier.SafeRegex)
		m.PathKind, m.Regex, m.regexPrefix = PathRegex, re.Regexp, re.prefix
	case *routepb.RouteMatch_PathSeparatedPrefix:
		m.PathKind, m.Path = PathSeparatedPrefix, specifier.PathSeparatedPrefix
		if m.Path == "" || strings.HasSuffix(m.Path, "/") || strings.ContainsAny(m.Path, "?#") {
			v.fault(at.field("path_separated_prefix"), "%s must not be empty, end in / or have ? or # in it", quote(m.Path))
		}
	default:
		v.fault(at, "path_specifier must be prefix, path, path_separated_prefix or safe_regex, is %s", whichOneof(pb, "path_specifier"))
	}
	if params := pb.GetQueryParameters(); len(params) > 0 {
		m.Query = make([]QueryMatcher, len(params))
		for i, q := range params {
			m.Query[i] = v.queryMatcher(at.item("query_parameters", i), q)
		}
	}
	if headers := pb.GetHeaders(); len(headers) > 0 {
		m.Headers = make([]HeaderMatcher, len(headers))
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
		n *= million / 100
	case typepb.FractionalPercent_TEN_THOUSAND:
		n *= million / 10_000
	case typepb.FractionalPercent_MILLION:
	default:
		v.fault(at.field("denominator"), "is the unknown value %d", percent.GetDenominator())
	}
	perMillion := uint32(min(n, million))
	return &perMillion
}

// onlyPath reports whether the path alone decides.
func (m *RouteMatch) onlyPath() bool {
	return len(m.Headers) == 0 && len(m.Query) == 0 && m.FractionPerMillion == nil
}

// matchesRest reports whether an RPC fits whose path does. It asks for the
// cheapest first, and for the fraction last: a draw is made only if it
// decides.
func (m *RouteMatch) matchesRest(rpc *RPC, headers *headers) bool {
	if len(m.Query) > 0 {
		_, query := splitQuery(rpc.Method)
		for i := range m.Query {
			if !m.Query[i].matches(query) {
				return false
			}
		}
	}
	for i := range m.Headers {
		if !m.Headers[i].matches(headers) {
			return false
		}
	}
	return m.FractionPerMillion == nil || rpc.draw() < *m.FractionPerMillion
}

// matchesPath reports whether a path, a method without its query, fits.
func (m *RouteMatch) matchesPath(path string) bool {
	switch m.PathKind {
	case PathRegex:
		return m.Regex.MatchString(path)
	case PathExact:
		return len(path) == len(m.Path) && m.hasPrefix(path)
	case PathSeparatedPrefix:
		return m.hasPrefix(path) && (len(path) == len(m.Path) || path[len(m.Path)] == '/')
	default:
		return m.hasPrefix(path)
	}
}

func (m *RouteMatch) hasPrefix(path string) bool {
	if m.CaseInsensitive {
		return hasPrefixFold(path, m.Path)
	}
	return strings.HasPrefix(path, m.Path)
}

// draw returns a random number below a million. So a fraction of 0 matches
// nothing and one of a million everything, as in Envoy.
func (rpc *RPC) draw() uint32 {
	if rpc.Random == nil {
		return rand.Uint32N(million)
	}
	return uint32(rpc.Random() % million)
}

// hasPrefixFold is strings.HasPrefix without regard to the case of ASCII
// letters.
func hasPrefixFold(s, prefix string) bool {
	if len(s) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if lower(s[i]) != lower(prefix[i]) {
			return false
		}
	}
	return true
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		b += 'a' - 'A'
	}
	return b
}

// lowerASCII is strings.ToLower for ASCII letters only, as paths are compared.
func lowerASCII(s string) string {
	b := []byte(s)
	for i := range b {
		b[i] = lower(b[i])
	}
	return string(b)
}
