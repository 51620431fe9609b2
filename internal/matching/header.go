package matching

import "strconv"

// HeaderKind says what a Header asks of the header.
type HeaderKind int

// The kinds of Header.header_match_specifier. The deprecated ones that
// compare strings are a HeaderMatches like string_match.
const (
	// HeaderMatches asks that String matches the value.
	HeaderMatches HeaderKind = iota
	// HeaderRange asks for a decimal integer from Start up to, but not
	// including, End.
	HeaderRange
	// HeaderPresent asks that the header is there, if Present is set, or that
	// it is not.
	HeaderPresent
)

// Header is one condition on the headers of an RPC (gRFC A28). Several
// values of one header count as one, joined with ",". Headers whose names end
// in "-bin" are never there.
type Header struct {
	// Name is the name of the header in lower case.
	Name string
	Kind HeaderKind
	// String is for HeaderMatches.
	String String
	// Start and End are for HeaderRange.
	Start, End int64
	// Present is for HeaderPresent.
	Present bool
	// Invert turns the result around. A header that is not there still does
	// not match a HeaderMatches or HeaderRange.
	Invert bool
	// MissingAsEmpty has a header that is not there taken for one with an
	// empty value (treat_missing_header_as_empty).
	MissingAsEmpty bool
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
