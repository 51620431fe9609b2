package document_test

import (
	"strings"
	"testing"

	"github.com/dynxds/dynxds/mesh/internal/document"
)

// read walks a document of the schema of these tests.
func read(v document.Value) (name string, sizes []uint64, tags map[string]string) {
	o := v.Object("name", "sizes", "tags", "kind", "on")
	for _, item := range o.Field("sizes").Items() {
		sizes = append(sizes, item.Uint(1, 10))
	}
	o.Field("kind").OneOf("Mesh", "MeshService")
	o.Field("on").Bool()
	return o.Require("name").Text(), sizes, o.Field("tags").Texts()
}

// What the files of transcripts cannot have: bytes that no editor shows, empty lines at an end, and nothing.
func TestFaultsOfOddBytes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ file, text, want string }{
		{"f.yaml", "", "no fault"},
		{"f.yaml", "---\n---\n# nothing\n---\n", "no fault"},
		{"f.yaml", "name: a\nkind: \xff\n", "f.yaml:2: the text is not UTF-8"},
		{"f.yaml", "\ufeffname: a\n\ufeff---\nname: 1\n---\n\ufeffname: c\n---\r\n\ufeff{\"name\": 2}\n", `f.yaml:3: name: expected a string, found the number "1"; put it in quotes: "1"` +
			"\n" + `f.yaml:7: name: expected a string, found the number "2"; put it in quotes: "2"`},
		{"f.json", "{\"name\": \"a\",\n\n", "f.json:2: this is not JSON: unexpected end of JSON input"},
	} {
		if got := faultsOf(test.file, test.text); got != test.want {
			t.Errorf("%q: got %s, want %s", test.text, got, test.want)
		}
	}
}

// YAML has three spellings of each boolean.
func TestBool(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"true": true, "True": true, "TRUE": true, "false": false, "False": false, "FALSE": false} {
		var faults document.Faults
		v := document.Parse("f", []byte("on: "+text), &faults)[0].Peek("on")
		if got := v.Bool(); got != want || faults.Err() != nil {
			t.Errorf("%s: got %t, %v; want %t", text, got, faults.Err(), want)
		}
	}
}

// Untrusted input must not exhaust the process.
func TestBounds(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"deep YAML":  strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000),
		"deep JSON":  `{"a":` + strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000) + "}",
		"large file": "name: " + strings.Repeat("a", document.MaxSize),
	} {
		var faults document.Faults
		if documents := document.Parse("f", []byte(text), &faults); len(documents) != 0 || faults.Err() == nil {
			t.Errorf("%s: %d documents, %v", name, len(documents), faults.Err())
		}
	}
}

func TestLongReportIsBounded(t *testing.T) {
	t.Parallel()
	lines := strings.Split(faultsOf("f.yaml", "name: a\nsizes: ["+strings.Repeat("0,", 150)+"]\n"), "\n")
	if len(lines) != 101 || lines[100] != "and 50 more" {
		t.Errorf("got %d lines, the last one is %q", len(lines), lines[len(lines)-1])
	}
	var faults document.Faults
	document := document.Parse("f", []byte("kind: Wrong"), &faults)[0]
	for !faults.Full() {
		document.Fault("", "bad")
	}
	if got := document.Peek("kind").OneOf("Right"); got != "" || faults.Omitted != 1 {
		t.Errorf("behind a full list, OneOf gave %q and %d faults are omitted, want 1", got, faults.Omitted)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"name: a\nsizes: [1]\n", "{\"name\": \"a\"}", "a: &a [*a]", "---\n? {}\n: - 1\n", "a: !!str\n", "<<: {a: b}", "a: 1\n...\nb: 2\n", "{}\n{}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var faults document.Faults
		for _, name := range []string{"f.yaml", "f.json"} {
			for _, document := range document.Parse(name, data, &faults) {
				read(document)
			}
		}
		// YAML has more line breaks than one.
		lines := 1
		for _, r := range string(data) {
			if strings.ContainsRune("\n\r\u0085\u2028\u2029", r) {
				lines++
			}
		}
		for _, fault := range faults.List {
			if fault.Line < 1 || fault.Line > lines {
				t.Fatalf("%v: the text has %d lines", fault, lines)
			}
		}
	})
}
