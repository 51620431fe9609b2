package matching

import (
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestLiteralPrefix(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"/a/b":          "/a/b",
		"/a/.*":         "/a/",
		"^/a/[bc]":      "/a/",
		"(/a)(/b|/c)":   "/a/",
		"(/a/b)x+":      "/a/bx",
		"(?i)/a":        "/",
		"/ab*":          "/a",
		"/a|/b":         "/",
		"/a(?:)b$":      "/ab",
		".*":            "",
		"/a\\x{FFFD}b":  "/a",
		"(?:/a(?i:b))c": "/a",
		"(?:/a){2}":     "/a/a",
		"/a(?:b{0,1})c": "/a",
		"\\Q/a.b\\E.":   "/a.b",
		"/\\p{Greek}":   "/",
		"\\b/a":         "",
	} {
		xdstest.Equal(t, "prefix of "+pattern, want, regex(pattern).Further.Regex.prefix)
	}
}

// Pattern returns a pattern as it was, whether it has to match a whole string or a part, and also if it looks as if
// it were framed.
func TestPattern(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"/a", `a(b)\z`, `\A(?:a)b`, `\A(?:a)\z|b`} {
		for _, whole := range []bool{true, false} {
			re, err := CompileRegex(pattern, whole, nil)
			xdstest.NoError(t, err)
			xdstest.Equal(t, "pattern", pattern, Pattern(re.Regexp))
		}
	}
}
