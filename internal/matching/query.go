package matching

import "strings"

// Query is a condition on the query of a method (RouteMatch.query_parameters). A method
// without a query never matches (gRFC A28). As in Envoy, names and values are compared
// without percent decoding, and the first of several values counts.
type Query struct {
	Name    string
	String  *String // has to match the value; nil: see Present
	Present bool    // whether the parameter has to be present, or absent
}

// matches reports whether a query, with its "?", matches.
func (m *Query) matches(query string) bool {
	if !strings.HasPrefix(query, "?") {
		return false
	}
	value, present := parameter(query[1:], m.Name)
	if m.String == nil {
		return present == m.Present
	}
	return present && m.String.Matches(value)
}

// parameter returns the first value of a parameter in a query.
func parameter(query, name string) (value string, present bool) {
	query, _, _ = strings.Cut(query, "#")
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if key, value, _ := strings.Cut(pair, "="); key == name {
			return value, true
		}
	}
	return "", false
}
