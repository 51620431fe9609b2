package matching

import "strconv"

// HeaderKind is the kind of a Header.
type HeaderKind int

// The kinds of Header.header_match_specifier. The deprecated ones that
// compare strings are a HeaderMatches like string_match.
const (
	HeaderMatches HeaderKind = iota // String matches the value
	HeaderRange                     // the value is a decimal integer in [Start, End)
	HeaderPresent                   // the header is present, or absent, as Present says
)

// Header is a condition on a header of an RPC (gRFC A28). Several values are joined with
// ",". Headers whose names end in "-bin" are absent.
type Header struct {
	Name       string // in lower case
	Kind       HeaderKind
	String     String // for HeaderMatches
	Start, End int64  // for HeaderRange
	Present    bool   // for HeaderPresent
	// Invert inverts the result, but HeaderMatches and HeaderRange still do not match a
	// header that is absent.
	Invert bool
	// MissingAsEmpty treats an absent header as empty (treat_missing_header_as_empty).
	MissingAsEmpty bool
}

// MatchesAny reports whether the headers meet any of the conditions.
func MatchesAny(conditions []Header, h *Headers) bool {
	for i := range conditions {
		if conditions[i].matches(h) {
			return true
		}
	}
	return false
}

func (m *Header) matches(h *Headers) bool {
	value, present := h.Get(m.Name)
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
