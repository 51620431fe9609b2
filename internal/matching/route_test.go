package matching

import (
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestPaths(t *testing.T) {
	t.Parallel()
	regex, err := CompileRegex("/a/(B|C)", true, nil)
	xdstest.NoError(t, err)
	for want, route := range map[string]Route{
		"*":         {},
		"/a/*":      {Path: "/a/"},
		"/a/B":      {PathKind: PathExact, Path: "/a/B"},
		"/a{,/*}":   {PathKind: PathSeparatedPrefix, Path: "/a"},
		"~/a/(B|C)": {PathKind: PathRegex, Further: &Conditions{Regex: regex}},
	} {
		xdstest.Equal(t, "route.Paths()", want, route.Paths())
	}
}
