package document

import (
	"cmp"
	"strconv"
	"strings"
	"testing"
)

// TestStructureErrorsNameTheLine has documents that are no YAML; "<" ends the line that is to be named.
func TestStructureErrorsNameTheLine(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, suggestion string }{
		"item's field too far left":  {"a: b\nlist:\n- address: a:1\n priority: 0<\nx: 1\n", misindented},
		"item's field too far right": {"a: b\nlist:\n- address: a:1\n   priority: 0<\nx: 1\n", misindented},
		"item too far left":          {"list:\n  - address: a:1\n - address: b:2<\nx: 1\n", misindented},
		"item too far right":         {"list:\n- address: a:1\n  - address: b:2<\nx: 1\n", misindented},
		"field too far left":         {"tls:\n    mode: simple\n  sni: x<\nx: 1\n", misindented},
		"field too far right":        {"tls:\n  mode: simple\n   sni: x<\nx: 1\n", misindented},
		"field beside a list":        {"- kind: Service\nname: a<\n", misindented},
		"tab before an item":         {"a: b\nlist:\n\t- address: a:1<\nx: 1\n", "use spaces"},
		"tab before a field":         {"a: b\nlist:\n- address: a:1\n\tpriority: 0<\nx: 1\n", "use spaces"},
		"no colon":                   {"kind: Service\nname a<\nx: 1\n", colonMissing},
		"no colon before a list":     {"kind: Service\nendpoints<\n- address: a:1\n", colonMissing},
		"no colon in an item":        {"endpoints:\n- address a:1<\n  weight: 1\n", colonMissing},
		"no blank after a colon":     {"kind:Service<\nname: a\n", colonMissing},
		"double quote not closed":    {"kind: Service\nname: \"a<\nendpoints:\n- address: a:1\n", "close the quote"},
		"quote closed by another":    {"kind: Service\nname: 'a<\nendpoints:\n- address: a:1\nx: 'b'\n", "close the quote"},
		"brace not closed":           {"name: a\nloadBalancing: {policy: RingHash<\nendpoints:\n- address: a:1\n", "close the bracket"},
		"bracket not closed":         {"name: a\nflow: [1,\n 2]\nlocalities: [{region: eu}<\nx: 1\n", "close the bracket"},
		"text with a colon":          {"kind: Service\nname: a: b<\n", "put the text with a colon in quotes"},
		"field twice":                {"kind: Service\nname: a\nname: b<\n", "if another document begins here, write --- on a line before it; otherwise keep one of the two"},
		"field of a field twice":     {"kind: Service\ntls:\n  mode: simple\n  mode: off<\n", ""},
		"second document":            {"a: b\n---\ntls:\n    mode: simple\n  sni: x<\n", misindented},
	} {
		before, after, _ := strings.Cut(tc.text, "<")
		var found Faults
		for _, doc := range Parse("f.yaml", []byte(before+after), &found) {
			doc.Object("tls", "kind", "a").Field("tls").Object()
		}
		found.Err()
		want := 1 + strings.Count(before, "\n")
		i := 0
		for i < len(found.List)-1 && strings.HasPrefix(found.List[i].Problem, "unknown field") {
			i++
		}
		if len(found.List) == 0 || found.List[i].Line != want || found.List[i].Suggestion != tc.suggestion {
			t.Errorf("%s: got %v, want line %d and %s", name, found.List, want, cmp.Or(strconv.Quote(tc.suggestion), "no suggestion"))
		}
	}
}

func TestSearchForBrokenLineIsBounded(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("- a\n", 2000) + " - b: c: d\n"
	if line := brokenLine([]byte(text)); line != 0 {
		t.Errorf("line %d of a document of %d bytes was found", line, len(text))
	}
}
