package document_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

func faultsOf(text string) []string {
	var faults document.Faults
	for _, document := range document.Parse("f.yaml", []byte(text), &faults) {
		read(document)
	}
	if err := faults.Err(); err != nil {
		return strings.Split(err.Error(), "\n")
	}
	return nil
}

func TestEveryFaultHasItsLinePathAndSuggestion(t *testing.T) {
	t.Parallel()
	tests := []struct {
		given, text string
		then        []string
	}{
		{"an empty file", "", nil},
		{"empty documents", "---\n---\n# nothing\n---\n", nil},
		{"no fault", "name: a\nsizes: [1, 10]\ntags: {a: b}\nkind: Mesh\non: true\n", nil},
		{"an unknown field similar to a known one", "name: a\nsize: []\n", []string{`f.yaml:2: unknown field "size"; did you mean "sizes"?`}},
		{"an unknown field unlike any other", "name: a\nxyzzy: []\n", []string{`f.yaml:2: unknown field "xyzzy"; it can be name, sizes, tags, kind, on`}},
		{"a field in another case", "Name: a\nname: b\n", []string{`f.yaml:1: unknown field "Name"; did you mean "name"?`}},
		{"a field twice", "name: a\ntags: {v: a,\n v: b}\n", []string{`f.yaml:3: tags.v: expected the key once, found it again`}},
		{"a document without a line before it", "name: a\nkind: Mesh\non: true\nname: b\nkind: x\n---\nkind: y\nname: c\n", []string{
			`f.yaml:4: name: expected the key once, found it again; if another document begins here, write --- on a line before it; otherwise keep one of the two`,
			`f.yaml:7: kind: unknown value "y"; it can be Mesh, MeshService`,
		}},
		{"a number with a leading 0", "name: a\nsizes: [0, 010]\n---\nname: b\ntags: {zip: -08}\n---\nname: c\ntags: {zip: '010'}\nsizes: [1, 10]\n", []string{
			`f.yaml:2: the number 010 is octal for some programs and decimal for others; write it without the leading 0, or put it in quotes if it is text`,
			`f.yaml:5: the number -08 is octal for some programs and decimal for others; write it without the leading 0, or put it in quotes if it is text`,
		}},
		{"byte order marks at the starts of documents", "\ufeffname: a\n\ufeff---\nname: 1\n---\n\ufeffname: c\n---\r\n\ufeff{\"name\": 2}\n", []string{
			`f.yaml:3: name: expected a string, found the number "1"; put it in quotes: "1"`,
			`f.yaml:7: name: expected a string, found the number "2"; put it in quotes: "2"`,
		}},
		{"null fields", "name: a\nsizes: null\ntags: ~\nkind:\non: null\n", nil},
		{"null in a list, and as a tag", "name: a\nsizes: [null]\ntags: {a: null}\n", []string{
			`f.yaml:2: sizes[0]: expected an integer from 1 to 10, found nothing`,
			`f.yaml:3: tags.a: expected a string, found nothing`,
		}},
		{"a missing field", "sizes: []\n", []string{`f.yaml:1: the field "name" is missing`}},
		{"a number for a string", "name: 1.0\n", []string{`f.yaml:1: name: expected a string, found the number "1.0"; put it in quotes: "1.0"`}},
		{"a boolean for a string", "name: true\n", []string{`f.yaml:1: name: expected a string, found the boolean "true"; put it in quotes: "true"`}},
		{"nothing for a string", "name:\n", []string{`f.yaml:1: name: expected a string, found nothing`}},
		{"a list for a string", "name: [a]\n", []string{`f.yaml:1: name: expected a string, found a list`}},
		{"an object for a list", "name: a\nsizes: {a: b}\n", []string{`f.yaml:2: sizes: expected a list, found an object`}},
		{"a list for an object", "- a\n", []string{`f.yaml:1: expected an object, found a list`}},
		{"numbers out of range", "name: a\nsizes:\n- 0\n- 11\n- -1\n- 1.5\n- a\n", []string{
			`f.yaml:3: sizes[0]: expected an integer from 1 to 10, found the number "0"`,
			`f.yaml:4: sizes[1]: expected an integer from 1 to 10, found the number "11"`,
			`f.yaml:5: sizes[2]: expected an integer from 1 to 10, found the number "-1"`,
			`f.yaml:6: sizes[3]: expected an integer from 1 to 10, found the number "1.5"`,
			`f.yaml:7: sizes[4]: expected an integer from 1 to 10, found the string "a"`,
		}},
		{"an unknown value", "name: a\nkind: meshservice\n", []string{`f.yaml:2: kind: unknown value "meshservice"; did you mean "MeshService"?`}},
		{"a value with letters swapped", "name: a\nkind: Mehs\n", []string{`f.yaml:2: kind: unknown value "Mehs"; did you mean "Mesh"?`}},
		{"not a boolean", "name: a\non: yes\n", []string{`f.yaml:2: on: expected true or false, found the string "yes"`}},
		{"a tag that is a number", "name: a\ntags:\n  v: 1\n", []string{`f.yaml:3: tags.v: expected a string, found the number "1"; put it in quotes: "1"`}},
		{"several documents, one of them not YAML", "name: 1\n---\nname: [\n---\nkind: x\nname: a\n", []string{
			`f.yaml:1: name: expected a string, found the number "1"; put it in quotes: "1"`,
			`f.yaml:3: this is not YAML: did not find expected node content`,
			`f.yaml:5: kind: unknown value "x"; it can be Mesh, MeshService`,
		}},
		{"an alias", "name: &a x\ntags: {b: *a}\n", []string{
			`f.yaml:1: anchors (&) and aliases (*) are not used here; write the value out, or put the text in quotes`,
			`f.yaml:2: anchors (&) and aliases (*) are not used here; write the value out, or put the text in quotes`,
		}},
		{"a YAML tag", "name: !!binary aGFsbG8=\n", []string{`f.yaml:1: tags (!) are not used here; leave it out, or put the text in quotes`}},
		{"a key that is not text", "? [a]\n: b\n", []string{`f.yaml:1: the name of a field must be text`, `f.yaml:1: the field "name" is missing`}},
		{"bytes that are not UTF-8", "name: a\nkind: \xff\n", []string{`f.yaml:2: the text is not UTF-8`}},
		{"JSON", "{\n\t\"name\": \"a\\/b\",\n\t\"sizes\": [1,\n\t0]\n}\n", []string{`f.yaml:4: sizes[1]: expected an integer from 1 to 10, found the number "0"`}},
		{"text after the end marker", "name: a\n...\nname: b\n", []string{`f.yaml:3: there is more text after the end of the document; write --- on a line between documents`}},
		{"an end marker alone", "name: a\n...\n# a remark\n---\nname: b\n", nil},
		{"two JSON objects", "{\"name\": \"a\"}\n{\"name\": \"b\"}\n", []string{`f.yaml:2: there is more text after the end of the document; write --- on a line between documents`}},
		{"text after JSON, in the second document", "name: a\n---\n{\"name\": \"a\"}\n\nsizes: [1]\n", []string{`f.yaml:5: there is more text after the end of the document; write --- on a line between documents`}},
		{"a bracket too many", "{name: a}}\n", []string{`f.yaml:1: there is more text after the end of the document; write --- on a line between documents`}},
		{"almost JSON is YAML", "{name: a, sizes: [0]}\n", []string{`f.yaml:1: sizes[0]: expected an integer from 1 to 10, found the number "0"`}},
	}
	for _, test := range tests {
		t.Run(test.given, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.then, faultsOf(test.text)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
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

// JSON has escapes and tabs that YAML does not.
func TestJSONAndYAMLGiveTheSameValues(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"name: a/é\nsizes: [1, 2]\ntags: {k: v}\n",
		"{\n\t\"name\":\t\"a\\/\\u00e9\", \"sizes\": [1, 2], \"tags\": {\"k\": \"v\"}}",
	} {
		var faults document.Faults
		documents := document.Parse("f", []byte(text), &faults)
		if len(documents) != 1 || faults.Err() != nil {
			t.Fatalf("%q: %d documents, %v", text, len(documents), faults.Err())
		}
		name, sizes, tags := read(documents[0])
		if diff := cmp.Diff("a/é [1 2] map[k:v]", fmt.Sprint(name, " ", sizes, " ", tags)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
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
	lines := faultsOf("name: a\nsizes: [" + strings.Repeat("0,", 150) + "]\n")
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

// A syntax error is reported at the line to correct, even if the YAML library reports
// another line or none.
func TestSyntaxErrorsHaveTheirLine(t *testing.T) {
	t.Parallel()
	const tab = "this is not YAML: a tab in the indentation; use spaces"
	tests := []struct{ given, file, text, then string }{
		{"a tab after a list item", "f.yaml", "name: a\nsizes:\n- a: 1\n\tb: 2\n", "f.yaml:4: " + tab},
		{"a tab under a key", "f.yaml", "name: a\ntags:\n\ta: b\n", "f.yaml:3: " + tab},
		{"a tab in the first line", "f.yaml", "\tname: a\n", "f.yaml:1: " + tab},
		{"a tab after spaces, in the second document", "f.yaml", "name: a\n---\nname: b\ntags:\n  \ta: b\n", "f.yaml:5: " + tab},
		{"a tab that is not the mistake", "f.yaml", "tags: {a:\n\tb}\nname: @a\n", "f.yaml:3: this is not YAML: found character that cannot start any token"},
		{"a missing comma in JSON", "f.json", "{\"name\": \"a\"\n \"sizes\": [1]}\n", `f.json:2: this is not JSON: invalid character '"' after object key:value pair`},
		{"JSON that ends too early", "f.json", "{\"name\": \"a\",\n\n", "f.json:2: this is not JSON: unexpected end of JSON input"},
	}
	for _, test := range tests {
		t.Run(test.given, func(t *testing.T) {
			t.Parallel()
			var faults document.Faults
			document.Parse(test.file, []byte(test.text), &faults)
			if err := faults.Err(); err == nil || err.Error() != test.then {
				t.Errorf("got %v, want %s", err, test.then)
			}
		})
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
