package matching

import "testing"

func TestPaths(t *testing.T) {
	t.Parallel()
	regex, _, err := CompileRegex("/a/(B|C)", true)
	if err != nil {
		t.Fatal(err)
	}
	for want, route := range map[string]Route{
		"*":         {},
		"/a/*":      {Path: "/a/"},
		"/a/B":      {PathKind: PathExact, Path: "/a/B"},
		"/a{,/*}":   {PathKind: PathSeparatedPrefix, Path: "/a"},
		"~/a/(B|C)": {PathKind: PathRegex, Regex: regex},
	} {
		if got := route.Paths(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
