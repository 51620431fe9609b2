package document_test

import (
	"encoding/json"
	"testing"

	"github.com/dynxds/dynxds/mesh/internal/document"
)

// The JSON of any document is valid, and each column of it leads into the document.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{"{a: [1, .inf, 0x1F, ~, 2026-01-02]}", "a: !!float x", "- |\n  text\n", "{\"a\": \"\\ud800\"}"} {
		f.Add([]byte(text))
	}
	if got := (document.Value{}).JSON(); got != nil {
		f.Errorf("a value that is not there is %s, want nothing", got)
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
