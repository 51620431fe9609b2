package site_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/site"
)

// TestDiff has documents of a store, "becomes", and those of a folder. Behind them is how many resources differ, and how.
func TestDiff(t *testing.T) {
	t.Parallel()
	golden.Cases(t, "testdata/diffs/*.txt", func(_, input string) string {
		before, after, _ := strings.Cut(input, "\nbecomes\n")
		var b strings.Builder
		differ, err := site.Diff(&b, parse(t, before), parse(t, after))
		xdstest.NoError(t, err)
		return fmt.Sprint(differ, "\n", b.String())
	})
}

func parse(t *testing.T, text string) *folder.Content {
	t.Helper()
	content, err := (&folder.Parser{Dir: "dir"}).Parse(map[string]string{"mesh.yaml": text})
	xdstest.NoError(t, err)
	return content
}
