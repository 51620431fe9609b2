package matching

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// Bounds on regular expressions, as a pattern of thirty bytes can compile to many megabytes.
// Costs are program instructions, as estimated by regexCost.
const (
	maxRegexLength = 8 << 10
	maxRegexCost   = 50_000
)

// A Regex is a compiled regular expression in RE2's syntax.
type Regex struct {
	*regexp.Regexp
	prefix string // of every string that matches as a whole
}

// CompileRegex compiles a pattern, which has to match a whole string or a part of it. cost
// is about the number of its instructions.
func CompileRegex(pattern string, whole bool) (re Regex, cost int, err error) {
	switch {
	case pattern == "":
		return Regex{}, 0, errors.New("must not be empty")
	case len(pattern) > maxRegexLength:
		return Regex{}, 0, fmt.Errorf("has %d bytes, more than %d", len(pattern), maxRegexLength)
	}
	// The pattern has to be valid before it is wrapped below, unlike "a)|(b".
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return Regex{}, 0, fmt.Errorf("is not a valid regular expression (RE2 syntax): %w", err)
	}
	if cost = regexCost(tree); cost > maxRegexCost {
		return Regex{}, cost, errors.New("is too large a regular expression; repetitions multiply")
	}
	if whole {
		pattern = wholeStart + pattern + wholeEnd
	}
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return Regex{}, cost, fmt.Errorf("cannot be compiled: %w", err)
	}
	return Regex{Regexp: compiled, prefix: literalPrefix(tree)}, cost, nil
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

// literalPrefix returns a prefix of every string that re matches. It need not be the longest.
func literalPrefix(re *syntax.Regexp) string {
	var b strings.Builder
	appendLiteralPrefix(&b, re)
	return b.String()
}

// appendLiteralPrefix appends the literal that re starts with and reports whether that is
// all of re.
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
