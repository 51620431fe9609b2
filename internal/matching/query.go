package matching

import "strings"

// Query is one condition on the query of a method (RouteMatch.
// query_parameters). A method without a query never fits, whatever the
// condition is (gRFC A28). Names and values are compared as they are, without
// percent decoding, and of several values the first one counts, as in Envoy.
type Query struct {
	Name string
	// String has to match the value. nil: see Present.
	String *String
	// Present says whether the parameter has to be there, or must not.
	Present bool
}

// matches reports whether a query, with its "?", fits.
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
