package matching

import (
	"regexp"
	"strings"
)

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
