package document_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/mesh/internal/document"
)

// compact returns a value as JSON on one line.
func compact(v document.Value) string {
	text, _ := v.JSON()
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return err.Error()
	}
	return b.String()
}

// The JSON of any document is valid, and each line of it leads into the document. What was JSON before has the same values.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{"{a: [1, .inf, 0x1F, ~, 2026-01-02]}", "a: !!float x", "- |\n  text\n", `{"a": "\ud800 \ud83d\ude00 \\ud800 \u0000"}`, "{\"\u2028\": \"\u0085\x7f\ufeff\"}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var faults document.Faults
		for _, document := range document.Parse("a.yaml", data, &faults) {
			text, at := document.JSON()
			if !json.Valid(text) {
				t.Errorf("not JSON: %s", text)
			}
			for i := range bytes.Count(text, []byte("\n")) {
				if line := at(i + 1).Position().Line; line < document.Position().Line {
					t.Errorf("line %d of %s is at line %d, before the document", i+1, text, line)
				}
			}
			var before, after map[string]string
			if json.Unmarshal(data, &before) != nil {
				continue
			}
			if err := json.Unmarshal(text, &after); err != nil {
				t.Errorf("%s became %s: %v", data, text, err)
			}
			for key, value := range before {
				if after[key] != value {
					t.Errorf("%q: %q became %q", key, value, after[key])
				}
			}
		}
	})
}

// A line of a value's JSON leads to the line and path in the document.
func TestLinesOfJSON(t *testing.T) {
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
	json, at := document.Parse("f.yaml", []byte(text), &faults)[0].JSON()
	for _, test := range []struct {
		at, path string
		line     int
	}{
		{"{\n", "", 2},
		{`"näme"`, "", 2},
		{`"ä\"ö"`, "näme", 2},
		{"1\n", "list[0]", 4},
		{`"wrong"`, "list[1].deep", 6},
		{`"three"`, "list[1].deep.wrong[1]", 6},
		{"{\n}", "empty", 7},
		{`true`, "last", 8},
	} {
		before, _, found := strings.Cut(string(json), test.at)
		if !found {
			t.Fatalf("%s is not in %s", test.at, json)
		}
		if got := at(strings.Count(before, "\n") + 1).Position(); got.Path != test.path || got.Line != test.line {
			t.Errorf("%s is at line %d, %q, want line %d, %q", test.at, got.Line, got.Path, test.line, test.path)
		}
	}
}
