// Package jsondoc reads JSON that people write, such as the bootstrap, and finds all that is wrong
// with it in one run, with paths and suggestions.
//
// [Parse] returns a [Value], which the caller walks according to its schema: [Value.Object] names
// the fields, [Value.Text] expects a string, and so on. A mismatch is added to the errors, and the
// walk goes on. As the formats of gRPC and protobuf want it, unknown fields are ignored, and an
// explicit null is the same as no field; a key that occurs twice is an error. The text may
// contain secrets, so errors show none of its values.
//
// The package is not a decoder into Go structs: those lose paths, and stop at the first
// mismatch. It has no place on the path of RPCs or updates, and knows nothing of what the
// values mean. Documents in YAML are read by package document.
package jsondoc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/dynxds/dynxds/internal/faults"
)

// Value is a place in a document and what was found there. The zero Value is absent: methods
// treat it as empty, and report no error unless they say that the value is required.
type Value struct {
	raw  json.RawMessage // valid JSON without spaces around it; empty if the value is absent
	path string
	from *document
}

// document is a text that is being read.
type document struct {
	faults  *faults.Faults
	ignored []ignoredKey
}

// Parse returns the value of a JSON text, or an error that says at which line and column the text
// is not JSON. It may be nested 10,000 levels deep; the caller bounds its size. Errors of the
// values are added to found. The value keeps the text.
func Parse(text []byte, found *faults.Faults) (Value, error) {
	if line, column, err := Check(text); err != nil {
		return Value{}, fmt.Errorf("not JSON: line %d, column %d: %w", line, column, err)
	}
	return Value{raw: bytes.TrimSpace(text), from: &document{faults: found}}, nil
}

// Check returns why a text is not JSON, and where, from 1.
func Check(text []byte) (line, column int, err error) {
	syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(text, new(json.RawMessage)))
	if !ok {
		return 0, 0, nil
	}
	// The offset is one past the character.
	before := text[:min(len(text), max(0, int(syntax.Offset)-1))]
	line = 1 + bytes.Count(before, []byte("\n"))
	return line, 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]), syntax
}

// Kind is the kind of a value, worded for errors.
type Kind string

// The kinds of values.
const (
	KindNothing Kind = "nothing" // the value is absent
	KindNull    Kind = "null"
	KindObject  Kind = "an object"
	KindList    Kind = "a list"
	KindText    Kind = "a string"
	KindNumber  Kind = "a number"
	KindBool    Kind = "a boolean"
)

// kinds are the kinds of values by their first bytes. The others are numbers.
var kinds = map[byte]Kind{'{': KindObject, '[': KindList, '"': KindText, 't': KindBool, 'f': KindBool, 'n': KindNull}

// Kind returns the kind of the value.
func (v Value) Kind() Kind {
	if !v.Present() {
		return KindNothing
	}
	return cmp.Or(kinds[v.raw[0]], KindNumber)
}

// Present reports whether the value is there at all. An explicit null is.
func (v Value) Present() bool { return len(v.raw) > 0 }

// Absent reports whether there is no value: no field, or an explicit null.
func (v Value) Absent() bool { return !v.Present() || v.Kind() == KindNull }

// IsObject reports whether the value is an object.
func (v Value) IsObject() bool { return v.Kind() == KindObject }

// IsList reports whether the value is a list.
func (v Value) IsList() bool { return v.Kind() == KindList }

// IsText reports whether the value is a string.
func (v Value) IsText() bool { return v.Kind() == KindText }

// Raw returns the value as it is written, or nil if it is absent. It must not be changed.
func (v Value) Raw() json.RawMessage { return v.raw }

// Path returns the place of the value, for example `authorities["a"].xds_servers[0]`. It is empty
// for the whole document.
func (v Value) Path() string { return v.path }

// Fault reports an error of this value. suggestion may be empty.
func (v Value) Fault(suggestion, problem string, args ...any) {
	if v.from != nil {
		v.from.faults.Add(faults.Fault{Path: v.path, Problem: fmt.Sprintf(problem, args...), Suggestion: suggestion})
	}
}

// AddFaults reports the errors of a part that was read by itself. Their paths start at v,
// and are completed.
func (v Value) AddFaults(of *faults.Faults) {
	if v.from == nil {
		return
	}
	for _, fault := range of.List {
		v.from.faults.Add(faults.Fault{Path: faults.Join(v.path, fault.Path), Problem: fault.Problem, Suggestion: fault.Suggestion})
	}
	v.from.faults.Omitted += of.Omitted
}

// Expected reports that the value is not what was expected. If it is absent, the error suggests
// a key that was ignored and looks like it.
func (v Value) Expected(what string) {
	suggestion := ""
	if v.from != nil && !v.Present() && !v.from.faults.Full() {
		isMeant := func(i ignoredKey) bool { return i.like != "" && faults.Join(i.path, i.like) == v.path }
		if at := slices.IndexFunc(v.from.ignored, isMeant); at >= 0 {
			suggestion = fmt.Sprintf("the key %s is ignored", faults.Quote(v.from.ignored[at].name))
		}
	}
	v.Fault(suggestion, "expected %s, found %s", what, v.Kind())
}

// Text reads a string.
func (v Value) Text() string {
	if v.Absent() {
		return ""
	}
	text, _ := v.RequiredText("a string")
	return text
}

// RequiredText reads a string that must be there. what describes it in the error.
func (v Value) RequiredText(what string) (text string, ok bool) {
	if !v.IsText() {
		v.Expected(what)
		return "", false
	}
	_ = json.Unmarshal(v.raw, &text) // Parse has checked it
	return text, true
}

// NonEmptyText is RequiredText for strings that must not be empty.
func (v Value) NonEmptyText(what string) (text string, ok bool) {
	text, ok = v.RequiredText(what)
	if ok && text == "" {
		v.Fault("", "expected %s, found an empty string", what)
		return "", false
	}
	return text, ok
}

// Bool reads true or false.
func (v Value) Bool() bool {
	if v.Absent() {
		return false
	}
	if v.Kind() != KindBool {
		v.Expected("true or false")
	}
	return string(v.raw) == "true"
}

// Object is a value with named fields.
type Object struct {
	Value
	fields map[string]Value
	order  []string
}

// Object reads an object. The result has the known fields, and ignores any other. If known is
// empty, all fields are known. If the value is no object, that is the only error: nothing is reported of its fields.
func (v Value) Object(known ...string) Object {
	return v.object("key", known, func(name string) string { return faults.Join(v.path, name) })
}

// Entries walks an object whose keys are names that the user chose. An entry has the
// path `parent["name"]`. A value that is not there has none.
func (v Value) Entries() iter.Seq2[string, Value] {
	o := v.object("name", nil, func(name string) string { return fmt.Sprintf("%s[%s]", v.path, faults.Quote(name)) })
	return func(yield func(string, Value) bool) {
		for _, name := range o.order {
			if !yield(name, o.fields[name]) {
				return
			}
		}
	}
}

// object reads an object whose members are at path, and whose keys errors call by a noun.
func (v Value) object(noun string, known []string, path func(name string) string) Object {
	o := Object{Value: v, fields: make(map[string]Value)}
	if !v.IsObject() {
		if v.Present() {
			v.Expected("an object")
			o.from = nil
		}
		return o
	}
	decoder := json.NewDecoder(bytes.NewReader(v.raw))
	_, _ = decoder.Token() // the bracket; Parse has checked all of it
	for decoder.More() {
		key, _ := decoder.Token()
		name := key.(string)
		field := Value{path: path(name), from: v.from}
		_ = decoder.Decode(&field.raw)
		switch _, twice := o.fields[name]; {
		case len(known) > 0 && !slices.Contains(known, name):
			v.from.ignore(v.path, name, known)
		case twice:
			field.Fault("", "expected the %s once, found it again", noun)
		default:
			o.fields[name] = field
			o.order = append(o.order, name)
		}
	}
	return o
}

// Field returns the value of a field.
func (o Object) Field(name string) Value {
	if field, ok := o.fields[name]; ok {
		return field
	}
	return Value{path: faults.Join(o.path, name), from: o.from}
}

// Optional returns the value of a field that need not be there. A null counts as not there.
func (o Object) Optional(name string) Value {
	field := o.Field(name)
	if field.Absent() {
		field.raw = nil
	}
	return field
}

// ProtoField returns an optional field of a message in proto JSON form, in which a name of several
// words has two spellings. It is an error if both are there.
func (o Object) ProtoField(snake, camel string) Value {
	inSnake, inCamel := o.Optional(snake), o.Optional(camel)
	if !inCamel.Present() {
		return inSnake
	}
	if inSnake.Present() {
		inCamel.Fault("", "expected the field once, found it as %s as well", snake)
	}
	return inCamel
}

// Names returns the names of the fields that are there, in the order of the text.
func (o Object) Names() []string { return slices.Clone(o.order) }

// Elements reads a list, which is empty if it is not there. what describes it in the error.
func (v Value) Elements(what string) []Value {
	if !v.IsList() {
		if v.Present() {
			v.Expected(what)
		}
		return nil
	}
	var all []json.RawMessage
	_ = json.Unmarshal(v.raw, &all) // Parse has checked it
	items := make([]Value, len(all))
	for i, raw := range all {
		items[i] = Value{raw, v.path + "[" + strconv.Itoa(i) + "]", v.from}
	}
	return items
}

// NonEmpty is Elements for a list that must be there, and not be empty.
func (v Value) NonEmpty(what string) []Value {
	items := v.Elements(what)
	switch {
	case !v.Present():
		v.Expected(what)
	case v.IsList() && len(items) == 0:
		v.Fault("", "expected %s, found an empty list", what)
	}
	return items
}

// maxIgnored bounds the unknown keys that are compared with known ones.
const maxIgnored = 100

// ignoredKey is an unknown key. like is the known key that it looks like, as if that was misspelt,
// or empty.
type ignoredKey struct{ path, name, like string }

func (d *document) ignore(path, name string, known []string) {
	if len(d.ignored) < maxIgnored {
		d.ignored = append(d.ignored, ignoredKey{path, name, faults.Nearest(name, known)})
	}
}

// Ignored returns the keys that were ignored so far in the document although they look like known
// ones, a line each with the suggestion. Only the first 100 unknown keys are looked at.
func (v Value) Ignored() (lines []string) {
	if v.from == nil {
		return nil
	}
	for _, i := range v.from.ignored {
		if i.like != "" {
			lines = append(lines, faults.Fault{Path: i.path, Problem: "the key " + faults.Quote(i.name) + " is ignored",
				Suggestion: fmt.Sprintf("did you mean %q?", i.like)}.String())
		}
	}
	return lines
}
