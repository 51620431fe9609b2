package matching

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
)

// HeaderKind is the kind of a Header.
type HeaderKind int

// The kinds of Header.header_match_specifier. The deprecated ones that
// compare strings are a HeaderMatches like string_match.
const (
	HeaderMatches HeaderKind = iota // String matches the value
	HeaderRange                     // the value is a decimal integer in [Start, End)
	HeaderPresent                   // the header is present
)

// Header is a condition on a header of an RPC (gRFC A28). Several values are joined with
// ",". Headers whose names end in "-bin" are absent.
type Header struct {
	Name       string // in lower case
	Kind       HeaderKind
	String     String // for HeaderMatches
	Start, End int64  // for HeaderRange
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
		return present != m.Invert
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

// StringKind is how a String matches.
type StringKind int

// The kinds of String.match_pattern.
const (
	StringExact StringKind = iota
	StringPrefix
	StringSuffix
	StringContains
	StringRegex // Regex matches the whole value
)

// String is a condition on a string (envoy.type.matcher.v3).
type String struct {
	Kind       StringKind
	Value      string         // in lower case if IgnoreCase is set
	Regex      *regexp.Regexp // for StringRegex
	IgnoreCase bool           // has no effect on a StringRegex
}

// NewString returns a String that compares with a value.
func NewString(kind StringKind, value string, ignoreCase bool) String {
	if ignoreCase {
		value = strings.ToLower(value)
	}
	return String{Kind: kind, Value: value, IgnoreCase: ignoreCase}
}

// Matches reports whether the condition holds for s.
func (m *String) Matches(s string) bool {
	if m.Kind == StringRegex {
		return m.Regex.MatchString(s)
	}
	if m.IgnoreCase {
		s = strings.ToLower(s)
	}
	switch m.Kind {
	case StringPrefix:
		return strings.HasPrefix(s, m.Value)
	case StringSuffix:
		return strings.HasSuffix(s, m.Value)
	case StringContains:
		return strings.Contains(s, m.Value)
	default:
		return s == m.Value
	}
}

// Bounds on regular expressions, as a pattern of thirty bytes can compile to many megabytes.
// Costs are program instructions, as estimated by RegexCost.
const (
	MaxRegexLength = 8 << 10
	maxRegexCost   = 50_000
	// MaxRegexTotal bounds the cost of all regular expressions of one resource.
	MaxRegexTotal = 1_000_000
)

// A Regex is a compiled regular expression in RE2's syntax.
type Regex struct {
	*regexp.Regexp
	Cost   int    // is about the number of its instructions
	prefix string // of every string that matches as a whole
}

// CompileRegex compiles a pattern, which has to match a whole string or a part of it, and adds its cost to total, that of the resource
// so far, which may be nil.
func CompileRegex(pattern string, whole bool, total *int) (re Regex, err error) {
	total = cmp.Or(total, new(int))
	switch {
	case pattern == "":
		return Regex{}, errors.New("must not be empty")
	case len(pattern) > MaxRegexLength:
		return Regex{}, fmt.Errorf("has %d bytes, more than %d", len(pattern), MaxRegexLength)
	case *total > MaxRegexTotal:
		return Regex{}, errors.New("is one too many: the regular expressions of this resource are too large together")
	}
	// The pattern has to be valid before it is wrapped below, unlike "a)|(b".
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return Regex{}, fmt.Errorf("is not a valid regular expression (RE2 syntax): %w", err)
	}
	re.Cost = RegexCost(tree)
	if *total += re.Cost; re.Cost > maxRegexCost {
		return Regex{}, errors.New("is too large a regular expression; repetitions multiply")
	}
	if whole {
		re.prefix, pattern = literalPrefix(tree), wholeStart+pattern+wholeEnd
	}
	if re.Regexp, err = regexp.Compile(pattern); err != nil {
		return Regex{}, fmt.Errorf("cannot be compiled: %w", err)
	}
	return re, nil
}

// literalPrefix returns a prefix of every string that tree matches as a whole. It need not be the longest.
func literalPrefix(tree *syntax.Regexp) string {
	program, _ := syntax.Compile(tree.Simplify()) // It has no errors.
	if first := program.Inst[program.Start]; first.Op == syntax.InstEmptyWidth && syntax.EmptyOp(first.Arg) == syntax.EmptyBeginText {
		program.Start = int(first.Out) // Some patterns begin with "^", which Prefix does not look behind.
	}
	prefix, _ := program.Prefix()
	return prefix
}

// RegexCost estimates the number of instructions that re compiles to. It stops
// counting a little above maxRegexCost.
func RegexCost(re *syntax.Regexp) int {
	cost := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		cost = min(cost+RegexCost(sub), maxRegexCost+1)
	}
	if re.Op == syntax.OpRepeat {
		cost *= max(re.Min, re.Max, 1)
	}
	return min(cost, maxRegexCost+1)
}
