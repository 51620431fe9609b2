package document_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dynxds/dynxds/mesh/internal/document"
)

// A column of a value's JSON leads to the line and path in the document.
func TestAtColumn(t *testing.T) {
	t.Parallel()
	var faults document.Faults
	const text = `
näme: "ä\"ö"
list:
- 1
- deep:
    wrong: [two, three]
empty: {}
last: true
`
	v := document.Parse("f.yaml", []byte(text), &faults)[0]
	json := string(v.JSON())
	for _, test := range []struct {
		at, path string
		line     int
	}{
		{`"näme"`, "", 2},
		{`"ä\"ö"`, "näme", 2},
		{`1,`, "list[0]", 4},
		{`"wrong"`, "list[1].deep", 6},
		{`"three"`, "list[1].deep.wrong[1]", 6},
		{`{}`, "empty", 7},
		{`true`, "last", 8},
	} {
		before, _, found := strings.Cut(json, test.at)
		if !found {
			t.Fatalf("%s is not in %s", test.at, json)
		}
		if got := v.AtColumn(1 + utf8.RuneCountInString(before)); got.Position().Path != test.path || got.Position().Line != test.line {
			t.Errorf("%s is at line %d, %q, want line %d, %q", test.at, got.Position().Line, got.Position().Path, test.line, test.path)
		}
	}
	for _, outside := range []int{-1, 0, 1, 10_000} {
		if got := v.AtColumn(outside); got.Position().Path != "" || !got.IsObject() {
			t.Errorf("column %d is at %q, want the value itself", outside, got.Position().Path)
		}
	}
}
