package xdsresource

import (
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	matcherpb "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// Bounds on regular expressions. A pattern of thirty bytes can ask for a
// program of many megabytes, and a resource can have many patterns. Costs are
// program instructions, as estimated by regexCost.
const (
	maxRegexLength = 8 << 10
	maxRegexCost   = 50_000
	maxRegexTotal  = 1_000_000
)

// regexes holds the regular expressions of one resource.
type regexes struct {
	compiled map[regexKey]regex
	cost     int
}

type regexKey struct {
	pattern string
	whole   bool
}

// regex is a compiled regular expression.
type regex struct {
	*regexp.Regexp
	// prefix is what every string that matches as a whole starts with; it may
	// be empty.
	prefix string
}

// regex compiles a pattern that has to match a whole string.
func (v *validator) regex(at *path, pb *matcherpb.RegexMatcher) regex {
	return v.compile(at, pb, true)
}

// compile compiles a pattern, each distinct one once. max_program_size and the
// choice of engine are ignored, as gRFC A28 says. Without a Regexp in it the
// result is that of a fault.
func (v *validator) compile(at *path, pb *matcherpb.RegexMatcher, whole bool) regex {
	pattern := pb.GetRegex()
	key := regexKey{pattern, whole}
	if re, ok := v.regexes.compiled[key]; ok {
		return re
	}
	at = at.field("regex")
	switch {
	case pattern == "":
		v.fault(at, "must not be empty")
		return regex{}
	case len(pattern) > maxRegexLength:
		v.fault(at, "has %d bytes, more than %d", len(pattern), maxRegexLength)
		return regex{}
	case v.regexes.cost > maxRegexTotal:
		v.fault(at, "the regular expressions of this resource are too large together")
		return regex{}
	case v.faultsFull():
		return regex{} // Parsing is not free, and no one would hear of it.
	}
	// The pattern has to be valid by itself: "a)|(b" is only once it is
	// wrapped below.
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		v.fault(at, "%s is not a valid regular expression (RE2 syntax): %s", quote(pattern), shorten(err.Error(), maxQuotedLength))
		return regex{}
	}
	cost := regexCost(tree)
	v.regexes.cost += cost
	if cost > maxRegexCost {
		v.fault(at, "%s is too large a regular expression; repetitions multiply", quote(pattern))
		return regex{}
	}
	if whole {
		pattern = `\A(?:` + pattern + `)\z`
	}
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		v.fault(at, "%s cannot be compiled: %s", quote(pb.GetRegex()), shorten(err.Error(), maxQuotedLength))
		return regex{}
	}
	re := regex{Regexp: compiled, prefix: literalPrefix(tree)}
	if v.regexes.compiled == nil {
		v.regexes.compiled = make(map[regexKey]regex)
	}
	v.regexes.compiled[key] = re
	return re
}

// regexCost estimates the number of instructions that re compiles to. It stops
// counting a little above maxRegexCost.
func regexCost(re *syntax.Regexp) int {
	cost := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		cost = min(cost+regexCost(sub), maxRegexCost+1)
	}
	if re.Op == syntax.OpRepeat {
		cost *= max(re.Min, re.Max, 1)
	}
	return min(cost, maxRegexCost+1)
}

// literalPrefix returns a string that everything that re matches starts with,
// as long as can be told at a glance.
func literalPrefix(re *syntax.Regexp) string {
	var b strings.Builder
	appendLiteralPrefix(&b, re)
	return b.String()
}

// appendLiteralPrefix appends the literal that re starts with and reports
// whether that is all of re.
func appendLiteralPrefix(b *strings.Builder, re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpBeginText:
		return true
	case syntax.OpCapture:
		return appendLiteralPrefix(b, re.Sub[0])
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if !appendLiteralPrefix(b, sub) {
				return false
			}
		}
		return true
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return false
		}
		for _, r := range re.Rune {
			// A pattern's U+FFFD also matches any byte that is not UTF-8.
			if r == utf8.RuneError {
				return false
			}
			b.WriteRune(r)
		}
		return true
	default:
		return false
	}
}
