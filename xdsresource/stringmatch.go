package xdsresource

import (
	"regexp"
	"strings"

	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// StringKind says how a StringMatcher compares.
type StringKind int

// The kinds of StringMatcher.match_pattern.
const (
	StringExact StringKind = iota
	StringPrefix
	StringSuffix
	StringContains
	// StringRegex matches a value that as a whole matches Regex.
	StringRegex
)

// StringMatcher is a condition on a string (envoy.type.matcher.v3).
type StringMatcher struct {
	Kind StringKind
	// Value is what to compare with; in lower case if IgnoreCase is set.
	Value string
	// Regex is for StringRegex.
	Regex *regexp.Regexp
	// IgnoreCase has no effect on a StringRegex.
	IgnoreCase bool
}

func (v *validator) stringMatcher(at *path, pb *matcherpb.StringMatcher) StringMatcher {
	ignoreCase := pb.GetIgnoreCase()
	switch pattern := pb.GetMatchPattern().(type) {
	case *matcherpb.StringMatcher_Exact:
		return newStringMatcher(StringExact, pattern.Exact, ignoreCase)
	case *matcherpb.StringMatcher_Prefix:
		return v.stringPart(at.field("prefix"), StringPrefix, pattern.Prefix, ignoreCase)
	case *matcherpb.StringMatcher_Suffix:
		return v.stringPart(at.field("suffix"), StringSuffix, pattern.Suffix, ignoreCase)
	case *matcherpb.StringMatcher_Contains:
		return v.stringPart(at.field("contains"), StringContains, pattern.Contains, ignoreCase)
	case *matcherpb.StringMatcher_SafeRegex:
		return v.stringRegex(at.field("safe_regex"), pattern.SafeRegex)
	default:
		v.fault(at, "match_pattern must be exact, prefix, suffix, contains or safe_regex, is %s", whichOneof(pb, "match_pattern"))
		return StringMatcher{}
	}
}

// stringPart decodes a pattern for a part of a string. An empty one would
// match everything, which cannot be what was meant.
func (v *validator) stringPart(at *path, kind StringKind, value string, ignoreCase bool) StringMatcher {
	if value == "" {
		v.fault(at, "must not be empty")
	}
	return newStringMatcher(kind, value, ignoreCase)
}

func (v *validator) stringRegex(at *path, pb *matcherpb.RegexMatcher) StringMatcher {
	return StringMatcher{Kind: StringRegex, Regex: v.regex(at, pb).Regexp}
}

func newStringMatcher(kind StringKind, value string, ignoreCase bool) StringMatcher {
	if ignoreCase {
		value = strings.ToLower(value)
	}
	return StringMatcher{Kind: kind, Value: value, IgnoreCase: ignoreCase}
}

// Matches reports whether s fits.
func (m *StringMatcher) Matches(s string) bool {
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
