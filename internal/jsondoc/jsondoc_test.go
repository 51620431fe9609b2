package jsondoc_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/jsondoc"
)

// faultsOf returns the errors that f finds in a document, one per line.
func faultsOf(t *testing.T, text string, f func(jsondoc.Value)) []string {
	t.Helper()
	var found faults.Faults
	v, err := jsondoc.Parse([]byte(text), &found)
	if err != nil {
		t.Fatal(err)
	}
	f(v)
	var lines []string
	for _, fault := range found.List {
		if fault.Line != 0 || fault.File != "" || fault.Suggestion != "" {
			t.Errorf("the fault has more than a path and a problem: %+v", fault)
		}
		lines = append(lines, fault.Path+": "+fault.Problem)
	}
	return lines
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                   "not JSON: line 1, column 1: unexpected end of JSON input",
		"{\n  \"é\": x}":     "not JSON: line 2, column 8: invalid character 'x' looking for beginning of value",
		"{} {}":              "not JSON: line 1, column 4: invalid character '{' after top-level value",
		"\n\n[1,\n 2":        "not JSON: line 4, column 2: unexpected end of JSON input",
		" {\"a\": [1, 2]}\n": "",
	} {
		v, err := jsondoc.Parse([]byte(text), new(faults.Faults))
		switch {
		case want == "" && (err != nil || string(v.Raw()) != strings.TrimSpace(text) || v.Path() != ""):
			t.Errorf("%q: %+v, %v", text, v, err)
		case want != "" && (err == nil || err.Error() != want):
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
}

// Every reading method is applied to values of every kind: either there is a result, or a
// error that names the kind.
func TestValuesOfEveryKind(t *testing.T) {
	t.Parallel()
	const text = `{"null": null, "string": "s", "empty": "", "list": [1], "none": [], "map": {"k": 1}, "yes": true, "no": false, "number": 17,
		"quoted": "18446744073709551615", "fraction": 1.5, "negative": -1}`
	type way struct {
		name string
		read func(jsondoc.Value) any
		// good are the results. A value without one yields an error with this text and
		// the kind that was found.
		good  map[string]any
		fault string
	}
	first := func(v any, _ bool) any { return v }
	count := func(v jsondoc.Value) any {
		n := 0
		for range v.NonEmpty("a list of something") {
			n++
		}
		return n
	}
	for _, w := range []way{
		{"Text", func(v jsondoc.Value) any { return v.Text() }, map[string]any{
			"missing": "", "null": "", "string": "s", "empty": "", "quoted": "18446744073709551615",
		}, "expected a string, found %s"},
		{"RequiredText", func(v jsondoc.Value) any { return first(v.RequiredText("a name")) }, map[string]any{
			"string": "s", "empty": "", "quoted": "18446744073709551615",
		}, "expected a name, found %s"},
		{"NonEmptyText", func(v jsondoc.Value) any { return first(v.NonEmptyText("a name")) }, map[string]any{
			"string": "s", "quoted": "18446744073709551615",
		}, "expected a name, found %s"},
		{"Bool", func(v jsondoc.Value) any { return v.Bool() }, map[string]any{"missing": false, "null": false, "yes": true, "no": false}, "expected true or false, found %s"},
		{"Elements", func(v jsondoc.Value) any { return len(v.Elements("a list")) }, map[string]any{"missing": 0, "list": 1, "none": 0}, "expected a list, found %s"},
		{"NonEmpty", count, map[string]any{"list": 1}, "expected a list of something, found %s"},
		{"Object", func(v jsondoc.Value) any {
			o := v.Object("k")
			return fmt.Sprintf("%v %s", o.IsObject(), o.Field("k").Raw())
		},
			map[string]any{"missing": "false ", "map": "true 1"}, "expected an object, found %s"},
		{"Entries", func(v jsondoc.Value) any {
			got := ""
			for name, entry := range v.Entries() {
				got += name + entry.Path()
			}
			return got
		}, map[string]any{"missing": "", "map": `kmap["k"]`}, "expected an object, found %s"},
	} {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			for key, kind := range map[string]jsondoc.Kind{
				"missing": "nothing", "null": "null", "string": "a string", "empty": "a string", "list": "a list", "none": "a list", "map": "an object",
				"yes": "a boolean", "no": "a boolean", "number": "a number", "quoted": "a string", "fraction": "a number", "negative": "a number",
			} {
				found := string(kind)
				if key == "empty" && w.name == "NonEmptyText" {
					found = "an empty string"
				}
				if key == "none" && w.name == "NonEmpty" {
					found = "an empty list"
				}
				want, good := w.good[key]
				var got any
				faults := faultsOf(t, text, func(v jsondoc.Value) {
					o := v.Object("null", "string", "empty", "list", "none", "map", "yes", "no", "number", "quoted", "fraction", "negative")
					if got = w.read(o.Field(key)); o.Field(key).Kind() != kind {
						t.Errorf("%s is %s, want %s", key, o.Field(key).Kind(), kind)
					}
				})
				if good {
					if got != want || faults != nil {
						t.Errorf("%s: %v with faults %q, want %v", key, got, faults, want)
					}
					continue
				}
				if diff := cmp.Diff([]string{key + ": " + fmt.Sprintf(w.fault, found)}, faults); diff != "" {
					t.Errorf("%s: faults (-want +got):\n%s", key, diff)
				}
			}
		})
	}
}

func TestPathsAndTwins(t *testing.T) {
	t.Parallel()
	faults := faultsOf(t, `{"a": [{"b": 1, "b": 2}, {"map": {"x.y\n": 1, "z": 2, "z": 3}}], "two_words": 1, "twoWords": 2, "other": 1, "other": 2}`, func(v jsondoc.Value) {
		o := v.Object("a", "two_words", "twoWords")
		o.ProtoField("two_words", "twoWords").Fault("", "seen")
		for _, element := range o.Field("a").Elements("a list") {
			inner := element.Object("b", "map")
			inner.Field("b").Fault("", "seen, %s", inner.Field("b").Raw())
			if inner.Field("map").Absent() {
				continue
			}
			for _, entry := range inner.Field("map").Entries() {
				entry.Fault("", "seen")
			}
		}
	})
	want := []string{
		"twoWords: expected the field once, found it as two_words as well",
		"twoWords: seen",
		"a[0].b: expected the key once, found it again",
		"a[0].b: seen, 1",
		"a[1].b: seen, ",
		`a[1].map["z"]: expected the name once, found it again`,
		`a[1].map["x.y\n"]: seen`,
		`a[1].map["z"]: seen`,
	}
	if diff := cmp.Diff(want, faults); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

// Raw returns a value as it is written; errors of a part get the path of the whole.
func TestRawAndFaultsOfAPart(t *testing.T) {
	t.Parallel()
	const text = "{ \"a\" : { \"k\": \"v\\u00e9\" } , \"b\":[ 1.50,\"\xff\",null , true] }"
	got := faultsOf(t, text, func(v jsondoc.Value) {
		o := v.Object("a", "b")
		for _, part := range append(o.Field("b").Elements("a list"), o.Field("a"), o.Field("b")) {
			part.AddFaults(&faults.Faults{List: []faults.Fault{{Path: "[0]", Problem: string(part.Raw())}, {Problem: "p"}}})
		}
	})
	want := []string{"b[0][0]: 1.50", "b[0]: p", "b[1][0]: \"\xff\"", "b[1]: p", "b[2][0]: null", "b[2]: p", "b[3][0]: true", "b[3]: p",
		`a[0]: { "k": "v\u00e9" }`, "a: p", "b[0]: [ 1.50,\"\xff\",null , true]", "b: p"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzParse: every value of any document can be read, and reading ends.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"a": [1, {"b": null}], "a": "x", "c": {"d": true}}`))
	f.Add([]byte(`[[[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var found faults.Faults
		if v, err := jsondoc.Parse(data, &found); err == nil {
			walk(t, v)
		}
	})
}

func walk(t *testing.T, v jsondoc.Value) {
	v.Text()
	v.Bool()
	if raw := v.Raw(); !json.Valid(raw) {
		t.Errorf("%s is %q, which is not JSON", v.Path(), raw)
	}
	v.Object("a", "b").ProtoField("a", "b")
	for _, element := range v.NonEmpty("a list") {
		walk(t, element)
	}
	for _, entry := range v.Entries() {
		walk(t, entry)
	}
}
