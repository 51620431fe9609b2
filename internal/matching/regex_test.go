package matching

import "testing"

func TestLiteralPrefix(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"/a/b":          "/a/b",
		"/a/.*":         "/a/",
		"^/a/[bc]":      "/a/",
		"(/a)(/b|/c)":   "/a/",
		"(/a/b)x+":      "/a/b",
		"(?i)/a":        "",
		"/ab*":          "/a",
		"/a|/b":         "/",
		"/a(?:)b$":      "/ab",
		".*":            "",
		"/a\\x{FFFD}b":  "/a",
		"(?:/a(?i:b))c": "/a",
		"(?:/a){2}":     "",
		"/a(?:b{0,1})c": "/a",
		"\\Q/a.b\\E.":   "/a.b",
		"/\\p{Greek}":   "/",
		"\\b/a":         "",
	} {
		if got := regex(pattern).Further.Regex.prefix; got != want {
			t.Errorf("prefix of %q = %q, want %q", pattern, got, want)
		}
	}
}
