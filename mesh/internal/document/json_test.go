package document_test

import (
	"encoding/json"
	"testing"

	"github.com/dynxds/dynxds/mesh/internal/document"
)

func TestJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, yaml, want string }{
		{"an object", "{a: x, b: {c: y}}", `{"a":"x","b":{"c":"y"}}`},
		{"a list", "[a, 1, true, null, []]", `["a",1,true,null,[]]`},
		{"text that looks like something else", `["1", 'true', "null"]`, `["1","true","null"]`},
		{"digits as they are", "[12345678901234567890, 1.50, -3e2]", `[12345678901234567890,1.50,-3e2]`},
		{"numbers that JSON writes otherwise", "[0x10, 0o17]", `[16,15]`},
		{"a number that JSON lacks", "[.inf]", `[".inf"]`},
		{"a date is text", "[2026-01-02]", `["2026-01-02"]`},
		{"booleans in capitals", "[True, FALSE]", `[true,false]`},
		{"escapes", `["a\"\\\n\u2028"]`, `["a\"\\\n\u2028"]`},
		{"JSON itself", `{"a": [1, "b"]}`, `{"a":[1,"b"]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var faults document.Faults
			documents := document.Parse("a.yaml", []byte(test.yaml), &faults)
			if err := faults.Err(); err != nil || len(documents) != 1 {
				t.Fatalf("got %d documents, %v", len(documents), err)
			}
			if got := string(documents[0].JSON()); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
	if got := (document.Value{}).JSON(); got != nil {
		t.Errorf("a value that is not there is %s, want nothing", got)
	}
}

// The JSON of any document is valid, and each column of it leads into the document.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{"{a: [1, .inf, 0x1F, ~, 2026-01-02]}", "a: !!float x", "- |\n  text\n", "{\"a\": \"\\ud800\"}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var faults document.Faults
		for _, document := range document.Parse("a.yaml", data, &faults) {
			text := document.JSON()
			if !json.Valid(text) {
				t.Errorf("not JSON: %s", text)
			}
			for column := range min(len(text), 100) + 2 {
				if at := document.AtColumn(column); at.Position().Line < document.Position().Line {
					t.Errorf("column %d of %s is at line %d, before the document", column, text, at.Position().Line)
				}
			}
		}
	})
}
