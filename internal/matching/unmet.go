package matching

import (
	"regexp"
	"strings"
)

// ConditionKind is the kind of a condition of a Route.
type ConditionKind int

// The kinds of conditions, in the order in which an RPC is checked against them. A fraction is none:
// it does not depend on the RPC.
const (
	ConditionNone ConditionKind = iota
	ConditionPath
	ConditionQuery
	ConditionHeader
)

// Unmet returns the first condition that an RPC does not meet: its kind, and its index in Query or
// Headers. The kind is ConditionNone if the RPC meets all of them, so that only FractionPerMillion
// decides. It is for explanations; RPCs are routed by Table.Find.
func (m *Route) Unmet(rpc *RPC) (kind ConditionKind, index int) {
	if path, _ := SplitQuery(rpc.Method); !m.MatchesPath(path) {
		return ConditionPath, 0
	}
	headers := rpc.Headers()
	return m.unmetRest(rpc, &headers)
}

// unmetRest is Unmet for a Route whose path matches.
func (m *Route) unmetRest(rpc *RPC, headers *Headers) (kind ConditionKind, index int) {
	c := m.Conditions()
	if len(c.Query) > 0 {
		_, query := SplitQuery(rpc.Method)
		for i := range c.Query {
			if !c.Query[i].matches(query) {
				return ConditionQuery, i
			}
		}
	}
	for i := range c.Headers {
		if !c.Headers[i].matches(headers) {
			return ConditionHeader, i
		}
	}
	return ConditionNone, 0
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
