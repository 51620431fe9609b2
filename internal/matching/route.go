package matching

import (
	"strings"
)

// PathKind says how a Route looks at the method.
type PathKind int

// The kinds of Route.path_specifier.
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

// A Route says which RPCs a route is for: those for which path, query, headers and
// fraction all match. The zero Route matches every RPC.
type Route struct {
	PathKind PathKind
	// Path is the path or prefix as configured.
	Path string
	// Regex is set if PathKind is PathRegex, and matches only a whole path.
	Regex Regex
	// CaseInsensitive has Path compared without regard to the case of ASCII
	// letters (case_sensitive: false). Regex is not concerned.
	CaseInsensitive bool
	// Headers and Query all have to match.
	Headers []Header
	Query   []Query
	// FractionPerMillion is the share of otherwise matching RPCs that match
	// (runtime_fraction.default_value; runtime_key is ignored, gRFC A28).
	// nil: all.
	FractionPerMillion *uint32
}

// Million is the denominator of fractions.
const Million = 1_000_000

// onlyPath reports whether the path alone decides.
func (m *Route) onlyPath() bool {
	return len(m.Headers) == 0 && len(m.Query) == 0 && m.FractionPerMillion == nil
}

// MatchesRest reports whether an RPC fits whose path does. It asks for the
// cheapest first, and for the fraction last: a draw is made only if it
// decides.
func (m *Route) MatchesRest(rpc *RPC, headers *Headers) bool {
	if len(m.Query) > 0 {
		_, query := SplitQuery(rpc.Method)
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
	return m.FractionPerMillion == nil || rpc.Draw() < *m.FractionPerMillion
}

// MatchesPath reports whether a path, a method without its query, fits.
func (m *Route) MatchesPath(path string) bool {
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

func (m *Route) hasPrefix(path string) bool {
	if m.CaseInsensitive {
		return hasPrefixFold(path, m.Path)
	}
	return strings.HasPrefix(path, m.Path)
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

// Covered returns how much of a path the match is about: its prefix, or all.
func (m *Route) Covered(path string) int {
	if m.PathKind == PathPrefix || m.PathKind == PathSeparatedPrefix {
		return min(len(m.Path), len(path))
	}
	return len(path)
}
