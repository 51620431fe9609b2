package matching

import (
	"math/rand/v2"
	"regexp"
	"strings"
)

// PathKind is how a Route matches the path.
type PathKind uint8

// The kinds of Route.path_specifier.
const (
	PathPrefix          PathKind = iota // the method, without its query, starts with Path
	PathExact                           // it is Path
	PathRegex                           // Regex matches the whole of it
	PathSeparatedPrefix                 // it is Path, or starts with Path and a "/"
)

// A Route says which RPCs a route matches: those for which path, query, headers and fraction
// all do. The zero Route matches every RPC.
type Route struct {
	Path     string // the path or prefix as configured
	PathKind PathKind
	// CaseInsensitive ignores the case of ASCII letters in Path (case_sensitive: false).
	CaseInsensitive bool
	// Further is nil if the above is all, as for most routes of a large table.
	Further *Conditions
}

// Conditions are what a Route has besides its path.
type Conditions struct {
	Regex   Regex // for PathRegex; it matches only a whole path
	Headers []Header
	Query   []Query
	// FractionPerMillion is the share of otherwise matching RPCs that match
	// (runtime_fraction.default_value; runtime_key is ignored, gRFC A28). nil: all.
	FractionPerMillion *uint32
}

// noConditions is never changed.
var noConditions Conditions

// Conditions returns what is in Further. The caller must not change it.
func (m *Route) Conditions() *Conditions {
	if m.Further == nil {
		return &noConditions
	}
	return m.Further
}

// Million is the denominator of fractions.
const Million = 1_000_000

// Draw reports whether one RPC is in a fraction, which has parts per million; nil: all. As in Envoy, a fraction of 0 has no RPC, and
// one of a million every RPC.
func Draw(fraction *uint32) bool { return fraction == nil || rand.Uint32N(Million) < *fraction }

// Paths returns the paths that match as text: "/package.Service/Method", "/package.Service/*" for
// a prefix, "/package.Service{,/*}" for a PathSeparatedPrefix, and "~" before a regular
// expression.
func (m *Route) Paths() string {
	switch m.PathKind {
	case PathRegex:
		return "~" + Pattern(m.Conditions().Regex.Regexp)
	case PathExact:
		return m.Path
	case PathSeparatedPrefix:
		return m.Path + "{,/*}"
	default:
		return m.Path + "*"
	}
}

// MatchesRest reports whether a Route whose path matches an RPC matches it altogether. The
// fraction comes last, so that a random number is drawn only if the rest matches.
func (m *Route) MatchesRest(rpc *RPC, headers *Headers) bool {
	query, header := m.unmetRest(rpc, headers)
	return query == nil && header == nil && Draw(m.Conditions().FractionPerMillion)
}

// MatchesPath reports whether a path, which is a method without its query, matches.
func (m *Route) MatchesPath(path string) bool {
	switch m.PathKind {
	case PathRegex:
		re := &m.Conditions().Regex
		return strings.HasPrefix(path, re.prefix) && re.MatchString(path)
	case PathExact:
		return len(path) == len(m.Path) && m.hasPrefix(path)
	case PathSeparatedPrefix:
		return m.hasPrefix(path) && (len(path) == len(m.Path) || path[len(m.Path)] == '/')
	default:
		return m.hasPrefix(path)
	}
}

func (m *Route) hasPrefix(path string) bool {
	if m.CaseInsensitive {
		return hasPrefixFold(path, m.Path)
	}
	return strings.HasPrefix(path, m.Path)
}

// hasPrefixFold is strings.HasPrefix but ignores the case of ASCII letters.
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

// SplitQuery splits off the query and the fragment.
func SplitQuery(method string) (path, query string) {
	path = method
	if i := strings.IndexByte(path, '?'); i >= 0 {
		path = path[:i]
	}
	if i := strings.IndexByte(path, '#'); i >= 0 {
		path = path[:i]
	}
	return path, method[len(path):]
}

// Covered returns the number of bytes of a path that the match covers: a prefix, or all.
func (m *Route) Covered(path string) int {
	if m.PathKind == PathPrefix || m.PathKind == PathSeparatedPrefix {
		return min(len(m.Path), len(path))
	}
	return len(path)
}

// Unmet returns the first condition that an RPC does not meet: that it has another path, or one on a query parameter or a header. It
// returns none if the RPC meets all of them, so that only FractionPerMillion decides. It is for explanations; RPCs are routed by Table.Find.
func (m *Route) Unmet(rpc *RPC) (otherPath bool, query *Query, header *Header) {
	if path, _ := SplitQuery(rpc.Method); !m.MatchesPath(path) {
		return true, nil, nil
	}
	headers := rpc.Headers()
	query, header = m.unmetRest(rpc, &headers)
	return false, query, header
}

// unmetRest is Unmet for a Route whose path matches.
func (m *Route) unmetRest(rpc *RPC, headers *Headers) (*Query, *Header) {
	c := m.Conditions()
	if len(c.Query) > 0 {
		_, query := SplitQuery(rpc.Method)
		for i := range c.Query {
			if !c.Query[i].matches(query) {
				return &c.Query[i], nil
			}
		}
	}
	for i := range c.Headers {
		if !c.Headers[i].matches(headers) {
			return nil, &c.Headers[i]
		}
	}
	return nil, nil
}

// QueryParameter returns the value that Query compares, and reports whether the method has the
// parameter.
func QueryParameter(method, name string) (value string, present bool) {
	_, query := SplitQuery(method)
	return parameter(strings.TrimPrefix(query, "?"), name)
}

// The frame of a pattern that has to match a whole string.
const wholeStart, wholeEnd = `\A(?:`, `)\z`

// Pattern returns the pattern that a regular expression was compiled from by CompileRegex.
func Pattern(re *regexp.Regexp) string {
	text := re.String()
	if inner, ok := strings.CutPrefix(text, wholeStart); ok && strings.HasSuffix(inner, wholeEnd) {
		return strings.TrimSuffix(inner, wholeEnd)
	}
	return text
}
