package jsonpath

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// read has f read a document, and returns its faults, a line each.
func read(t *testing.T, text string, f func(Value)) []string {
	t.Helper()
	var to Collector
	v, err := Document([]byte(text), &to)
	if err != nil {
		t.Fatal(err)
	}
	f(v)
	var lines []string
	list, _ := to.Faults()
	for _, fault := range list {
		lines = append(lines, fault.Path+": "+fault.Problem)
	}
	return lines
}

func TestDocument(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                   "not JSON: line 1, column 1: unexpected end of JSON input",
		"{\n  \"é\": x}":     "not JSON: line 2, column 8: invalid character 'x' looking for beginning of value",
		"{} {}":              "not JSON: line 1, column 4: invalid character '{' after top-level value",
		"\n\n[1,\n 2":        "not JSON: line 4, column 2: unexpected end of JSON input",
		" {\"a\": [1, 2]}\n": "",
	} {
		v, err := Document([]byte(text), new(Collector))
		switch {
		case want == "" && (err != nil || string(v.Raw) != strings.TrimSpace(text) || v.Path != ""):
			t.Errorf("%q: %+v, %v", text, v, err)
		case want != "" && (err == nil || err.Error() != want):
			t.Errorf("%q: error %v, want %s", text, err, want)
		}
	}
}

// Every way to read a value of every kind: what it comes to, and the fault if it is of
// another one.
func TestValuesOfEveryKind(t *testing.T) {
	t.Parallel()
	const document = `{"null": null, "string": "s", "empty": "", "list": [1], "none": [], "map": {"k": 1}, "yes": true, "no": false, "number": 17,
		"quoted": "18446744073709551615", "fraction": 1.5, "negative": -1}`
	type way struct {
		name string
		read func(Value) any
		// good is what it comes to. Where it is missing there is one fault of the
		// text, with the kind that was found.
		good  map[string]any
		fault string
	}
	first := func(v any, _ bool) any { return v }
	number := func(v Value) any {
		if n, _ := v.Uint64(); n != nil {
			return *n
		}
		return nil
	}
	count := func(v Value) any {
		n := 0
		for range v.NonEmpty("a list of something") {
			n++
		}
		return n
	}
	for _, w := range []way{
		{"Text", func(v Value) any { return v.Text() }, map[string]any{
			"missing": "", "null": "", "string": "s", "empty": "", "quoted": "18446744073709551615",
		}, "expected a string, found %s"},
		{"RequiredText", func(v Value) any { return first(v.RequiredText("a name")) }, map[string]any{
			"string": "s", "empty": "", "quoted": "18446744073709551615",
		}, "expected a name, found %s"},
		{"NonEmptyText", func(v Value) any { return first(v.NonEmptyText("a name")) }, map[string]any{
			"string": "s", "quoted": "18446744073709551615",
		}, "expected a name, found %s"},
		{"Boolean", func(v Value) any { return v.Boolean() }, map[string]any{"yes": true, "no": false}, "expected a boolean, found %s"},
		{"Uint64", number, map[string]any{
			"missing": nil, "null": nil, "number": uint64(17), "quoted": uint64(18446744073709551615),
		}, "expected an integer from 0 to 2^64-1, found %s that is none"},
		{"NonEmpty", count, map[string]any{"list": 1}, "expected a list of something, found %s"},
		{"Object", func(v Value) any { o, ok := v.Object("k"); return fmt.Sprintf("%v %s", ok, o.Get("k").Raw) },
			map[string]any{"map": "true 1"}, "expected an object, found %s"},
		{"Entries", func(v Value) any {
			got := ""
			for name, entry := range v.Entries() {
				got += name + entry.Path
			}
			return got
		}, map[string]any{"map": `kmap["k"]`}, "expected an object, found %s"},
	} {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			for key, kind := range map[string]string{
				"missing": Nothing, "null": Null, "string": String, "empty": String, "list": List, "none": List, "map": Map,
				"yes": Boolean, "no": Boolean, "number": Number, "quoted": String, "fraction": Number, "negative": Number,
			} {
				found := kind
				if key == "empty" && w.name == "NonEmptyText" {
					found = "an empty string"
				}
				if key == "none" && w.name == "NonEmpty" {
					found = "an empty list"
				}
				want, good := w.good[key]
				var got any
				faults := read(t, document, func(v Value) {
					o, _ := v.Object("null", "string", "empty", "list", "none", "map", "yes", "no", "number", "quoted", "fraction", "negative")
					if got = w.read(o.Get(key)); o.Get(key).Kind() != kind {
						t.Errorf("%s is %s, want %s", key, o.Get(key).Kind(), kind)
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
	faults := read(t, `{"a": [{"b": 1, "b": 2}, {"map": {"x.y\n": 1, "z": 2, "z": 3}}], "two_words": 1, "twoWords": 2, "other": 1, "other": 2}`, func(v Value) {
		o, _ := v.Object("a", "two_words", "twoWords")
		o.GetProto("two_words", "twoWords").Fail("seen")
		for element := range o.Get("a").Elements("a list") {
			inner, _ := element.Object("b", "map")
			inner.Get("b").Fail("seen, %s", inner.Get("b").Raw)
			if inner.Get("map").Absent() {
				continue
			}
			for _, entry := range inner.Get("map").Entries() {
				entry.Fail("seen")
			}
		}
	})
	want := []string{
		"twoWords: expected the field once, found it as two_words as well",
		"twoWords: seen",
		"a[0].b: expected the key once, found it again",
		"a[0].b: seen, 1",
		"a[1].b: seen, ",
		`a[1].map["x.y\n"]: seen`,
		`a[1].map["z"]: seen`,
		`a[1].map["z"]: expected the name once, found it again`,
	}
	if diff := cmp.Diff(want, faults); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestFaultsAreBounded(t *testing.T) {
	t.Parallel()
	var to Collector
	for i := range MaxFaults + 7 {
		to.Add(fmt.Sprint(i), "wrong")
	}
	to.Omit(3)
	list, omitted := to.Faults()
	if len(list) != MaxFaults || list[MaxFaults-1].Path != fmt.Sprint(MaxFaults-1) || omitted != 10 || to.Total() != MaxFaults+10 || !to.Full() {
		t.Errorf("%d faults are listed and %d are not, of %d", len(list), omitted, to.Total())
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	for _, tc := range [][3]string{{"", "b", "b"}, {"a", "", "a"}, {"a", "b", "a.b"}, {"a", "[0].b", "a[0].b"}, {"", "", ""}} {
		if got := Join(tc[0], tc[1]); got != tc[2] {
			t.Errorf("Join(%q, %q) = %q, want %q", tc[0], tc[1], got, tc[2])
		}
	}
}

func TestQuoteCutsBetweenCharacters(t *testing.T) {
	t.Parallel()
	if got, want := Quote(strings.Repeat("é", 60)+"x"), `"`+strings.Repeat("é", 50)+`…"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := Quote("a\xff"); got != `"a\xff"` {
		t.Errorf("got %s", got)
	}
}

// FuzzWalk: every value of any document can be read, and reading ends.
func FuzzWalk(f *testing.F) {
	f.Add([]byte(`{"a": [1, {"b": null}], "a": "x", "c": {"d": true}}`))
	f.Add([]byte(`[[[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var to Collector
		v, err := Document(data, &to)
		if err == nil {
			walk(v)
		}
		if list, _ := to.Faults(); len(list) > MaxFaults {
			t.Errorf("%d faults", len(list))
		}
	})
}

func walk(v Value) {
	v.Text()
	v.Boolean()
	v.Uint64()
	o, _ := v.Object("a", "b")
	o.GetProto("a", "b")
	for element := range v.NonEmpty("a list") {
		walk(element)
	}
	for _, entry := range v.Entries() {
		walk(entry)
	}
}
