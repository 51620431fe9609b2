package meshpolicy

import (
	"cmp"
	"slices"
	"strings"
)

// Match is a set of conditions, all of which a request must satisfy.
type Match struct {
	// Line is where the match starts in its policy's file, 0 if it is not written there.
	Line int `json:"-"`
	// Methods are in order, each once; empty means all.
	Methods []string `json:",omitempty"`
	// Path is zero if there is no condition on the path. Such a match is equal to none with the prefix
	// "/", which is tried before it.
	Path PathMatch
	// Headers and Query are in order.
	Headers []ValueMatch `json:",omitempty"`
	Query   []ValueMatch `json:",omitempty"`
}

// The types of comparisons, in the order in which paths are tried.
const (
	// Exact matches equal text.
	Exact = "Exact"
	// Prefix matches text with this prefix. In paths it ends at a segment: "/a" is a prefix of
	// "/a" and "/a/b", not of "/ab".
	Prefix = "Prefix"
	// RegularExpression matches the whole text, in the syntax of RE2.
	RegularExpression = "RegularExpression"
	// Present matches a header with any value.
	Present = "Present"
	// Absent matches if there is no such header.
	Absent = "Absent"
)

// PathMatch is the condition on the path. The zero PathMatch and the prefix "/" match everything.
type PathMatch struct {
	// Type is Exact, Prefix or RegularExpression.
	Type string
	// Value starts with "/", except for a RegularExpression. A Prefix other than "/" does not end
	// with one.
	Value string
	// Service has the length of a regular expression for the service of a GRPCRoute less one, and so -1 for any service. It counts
	// before the rest (GRPCRouteRule.matches: "Characters in a matching service").
	Service int `json:"-"`
}

// ValueMatch is a condition on one header or query parameter.
type ValueMatch struct {
	// Name is in lower case for a header.
	Name string
	// Type is Exact or RegularExpression for a query parameter.
	Type string
	// Value is empty for Present and Absent.
	Value string `json:",omitempty"`
}

// IsAny reports whether every path matches.
func (p PathMatch) IsAny() bool { return p == PathMatch{} || p == PathMatch{Type: Prefix, Value: "/"} }

// all reports whether every request matches.
func (m *Match) all() bool {
	return m.Path.IsAny() && len(m.Methods)+len(m.Headers)+len(m.Query) == 0
}

// String returns the conditions on one line.
func (m *Match) String() string {
	parts := []string{"path " + m.Path.Type + " " + m.Path.Value}
	if m.Path == (PathMatch{}) {
		parts[0] = "any path"
	}
	if len(m.Methods) > 0 {
		parts = append(parts, "method "+strings.Join(m.Methods, "|"))
	}
	for _, h := range m.Headers {
		parts = append(parts, "header "+h.String())
	}
	for _, q := range m.Query {
		parts = append(parts, "query "+q.String())
	}
	return strings.Join(parts, ", ")
}

// String returns the condition in short.
func (v ValueMatch) String() string {
	return strings.TrimRight(v.Name+" "+v.Type+" "+v.Value, " ")
}

func (v ValueMatch) compare(o ValueMatch) int {
	return cmp.Or(strings.Compare(v.Name, o.Name), strings.Compare(v.Type, o.Type), strings.Compare(v.Value, o.Value))
}

// normalize makes the keys of equal matches equal.
func (m *Match) normalize() {
	slices.Sort(m.Methods)
	m.Methods = slices.Compact(m.Methods)
	for _, list := range []*[]ValueMatch{&m.Headers, &m.Query} {
		slices.SortFunc(*list, ValueMatch.compare)
		*list = slices.Compact(*list)
	}
	if m.Path.Type == Prefix && len(m.Path.Value) > 1 {
		m.Path.Value = cmp.Or(strings.TrimRight(m.Path.Value, "/"), "/")
	}
}

// NormalizeMatches returns the canonical form of a rule's matches. No matches become one without
// conditions.
func NormalizeMatches(matches []Match) []Match {
	if len(matches) == 0 {
		return []Match{{}}
	}
	for i := range matches {
		matches[i].normalize()
	}
	slices.SortStableFunc(matches, func(a, b Match) int { return strings.Compare(Key(a), Key(b)) })
	return slices.CompactFunc(matches, func(a, b Match) bool { return Key(a) == Key(b) })
}

// compareMatches orders matches as Kuma does (CompareMatch of its MeshHTTPRoute), which decides the cases
// that the Gateway API leaves open (HTTPRouteRule.matches): an exact path, the longest prefix, the longest regular
// expression, no condition on the path; then a condition on the method; then the most conditions on
// headers; then on query parameters.
func compareMatches(a, b *Match) int {
	return cmp.Or(
		a.Path.compare(b.Path),
		cmp.Compare(min(len(b.Methods), 1), min(len(a.Methods), 1)),
		cmp.Compare(len(b.Headers), len(a.Headers)),
		cmp.Compare(len(b.Query), len(a.Query)),
	)
}

func (p PathMatch) compare(o PathMatch) int {
	rank := func(p PathMatch) int { return slices.Index([]string{Exact, Prefix, RegularExpression, ""}, p.Type) }
	if p.Type == Exact && o.Type == Exact {
		return 0
	}
	return cmp.Or(rank(p)-rank(o), o.Service-p.Service, len(o.Value)-len(p.Value))
}
