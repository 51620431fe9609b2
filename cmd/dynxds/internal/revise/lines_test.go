package revise

import (
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

func TestLines(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("x\n", 3000)
	for _, test := range []struct{ name, before, after, want string }{
		{"equal", "a\nb\n", "a\nb\n", "…"},
		{"created", "", "a\nb\n", "+ a|+ b"},
		{"emptied", "a\nb\n", "", "- a|- b"},
		{"in the middle", "1\n2\n3\n4\n5\n6\n7\n", "1\n2\n3\nx\n5\n6\n7\n", "…|  2|  3|- 4|+ x|  5|  6|…"},
		{"at both ends", "1\n2\n3\n4\n5\n6\n7\n", "a\n2\n3\n4\n5\n6\nb\n", "- 1|+ a|  2|  3|…|  5|  6|- 7|+ b"},
		{"moved", "a\nb\nc\n", "b\nc\na\n", "- a|  b|  c|+ a"},
		{"no newline at the end", "a\nb", "a\nc", "  a|- b|+ c"},
		{"long, with one line in common", "a\n" + many + "same\n", "b\nsame\nc\n", "- a|" + strings.Repeat("- x|", 3000) + "+ b|  same|+ c"},
		{"too long to compare", "a\n" + many, strings.ReplaceAll(many, "x", "y") + "a\n",
			"- a|" + strings.Repeat("- x|", 3000) + strings.Repeat("+ y|", 3000) + "+ a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			xdstest.Equal(t, "the lines", test.want, strings.Join(Lines(&test.before, &test.after), "|"))
		})
	}
	text := "a\n"
	if got := strings.Join(Lines(nil, &text), "|") + strings.Join(Lines(&text, nil), "|"); got != "+ a- a" {
		t.Errorf("created and deleted: got %q", got)
	}
}
