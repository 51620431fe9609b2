package document

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// The mark is under what an error is about: the name that it quotes, the last field of its path, or the beginning of the line.
func TestExcerpt(t *testing.T) {
	t.Parallel()
	const yaml = "kind: Service\nnme: shop\n- {a: [1, {b: x}]}\n\tc: 1\n"
	for _, test := range []struct {
		text  string
		fault Fault
		want  string
	}{
		{yaml, Fault{Line: 2, Problem: `unknown field "nme"`}, "     2 | nme: shop\n       | ^"},
		{yaml, Fault{Line: 3, Path: "x.a[1].b", Problem: "expected a number"}, "     3 | - {a: [1, {b: x}]}\n       |            ^"},
		{yaml, Fault{Line: 3, Problem: "no"}, "     3 | - {a: [1, {b: x}]}\n       |   ^"},
		{yaml, Fault{Line: 4, Problem: "a tab"}, "     4 |  c: 1\n       |  ^"},
		{yaml, Fault{Line: 9}, ""},
		{strings.Repeat(" ", 200) + "a: 1", Fault{Line: 1, Path: "a"}, "     1 | …a: 1\n       |  ^"},
		{"{\"a\": [\n  {\"b\": 1}]}", Fault{Path: "a[0].b"}, "     2 |   {\"b\": 1}]}\n       |         ^"},
		{"{\"a\": [\n  {\"b\": 1}]}", Fault{Path: "a[0].c"}, "     2 |   {\"b\": 1}]}\n       |   ^"},
		{`{"m": {"k k": 7}}`, Fault{Path: `m["k k"]`}, "     1 | {\"m\": {\"k k\": 7}}\n       |               ^"},
		{"a: \x1b[2J", Fault{Line: 1}, "     1 | a: \\x1b[2J\n       | ^"},
	} {
		test.fault.File = filepath.Join(t.TempDir(), "f")
		xdstest.NoError(t, os.WriteFile(test.fault.File, []byte(test.text), 0o600))
		xdstest.Equal(t, test.fault.Problem+test.fault.Path, test.want, strings.Join(Excerpt(test.fault), "\n"))
		xdstest.NoError(t, os.Truncate(test.fault.File, 1<<40)) // more than there is memory for
		xdstest.Equal(t, "lines of a file that is too large", 0, len(Excerpt(test.fault)))
	}
	xdstest.Equal(t, "lines of a file that is gone", 0, len(Excerpt(Fault{File: "/nowhere", Line: 1})))
}
