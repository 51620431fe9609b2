package document

import (
	"fmt"
	"iter"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/dynxds/dynxds/internal/faults"
)

// Object is a value with named fields.
type Object struct {
	Value
	fields map[string]Value
	order  []string
}

// Object reads an object. The result has the known fields; any other field is a fault,
// unless ParseJSON read the document. If known is empty, all fields are known.
func (v Value) Object(known ...string) Object {
	o := Object{Value: v, fields: map[string]Value{}}
	v.expect(Shape{Kind: KindObject, Known: known})
	if v.node != nil && !v.IsObject() {
		v.Expected("an object")
	}
	for key, value := range pairs(v.node) {
		name := key.Value
		switch _, twice := o.fields[name]; {
		case key.Kind != yaml.ScalarNode:
			Value{key, v.path, v.file}.Fault("", "the name of a field must be text")
		case len(known) > 0 && !slices.Contains(known, name):
			if v.file.lenient {
				v.file.ignore(v.path, name, known)
			} else {
				Value{key, v.path, v.file}.Fault(DidYouMean(name, known), "unknown field %s", faults.Quote(name))
			}
		case twice:
			v.field(key, name).Fault("", "expected the key once, found it again")
		default:
			o.fields[name] = v.field(value, name)
			o.order = append(o.order, name)
		}
	}
	return o
}

// Know is for an object of a document of ParseJSON whose fields another reader reads: Ignored then has
// those of its keys that look like known ones.
func Know(v Value, known ...string) {
	for key := range pairs(v.node) {
		if !slices.Contains(known, key.Value) {
			v.file.ignore(v.path, key.Value, known)
		}
	}
}

// Ignored returns the keys that were ignored so far in the document of ParseJSON although they look
// like known ones, a line each with the suggestion. Only the first 100 unknown keys are looked at.
func (v Value) Ignored() (lines []string) {
	if v.file == nil {
		return nil
	}
	for _, i := range v.file.ignored {
		if i.like != "" {
			lines = append(lines, Fault{Path: i.path, Problem: "the key " + faults.Quote(i.name) + " is ignored",
				Suggestion: fmt.Sprintf("did you mean %q?", i.like)}.String())
		}
	}
	return lines
}

// Field returns the value of a field.
func (o Object) Field(name string) Value {
	if field, ok := o.fields[name]; ok || o.file == nil || !o.file.lenient {
		return field
	}
	return o.field(nil, name)
}

// Require returns the value of a field that must be there.
func (o Object) Require(name string) Value {
	f := o.fields[name]
	o.expect(Shape{Kind: KindObject, Required: []string{name}})
	if !f.Present() && o.IsObject() {
		o.Fault("", "the field %q is missing", name)
	}
	return f
}

// ProtoField returns a field of a message in proto JSON form, in which a name of several
// words has two spellings. It is a fault if both are there.
func (o Object) ProtoField(snake, camel string) Value {
	inSnake, inCamel := o.Field(snake), o.Field(camel)
	if inCamel.Absent() {
		return inSnake
	}
	if !inSnake.Absent() {
		inCamel.Fault("", "expected the field once, found it as %s as well", snake)
	}
	return inCamel
}

// Names returns the names of the fields that are there, in the order of the file.
func (o Object) Names() []string { return slices.Clone(o.order) }

// Texts reads an object of strings. It is nil if the value is absent.
func (v Value) Texts() map[string]string {
	if v.node == nil {
		return nil
	}
	o := v.Object()
	texts := make(map[string]string, len(o.order))
	for name, field := range o.fields {
		texts[name] = field.Text()
	}
	return texts
}

// Peek returns the first field of that name and ignores the others: the kind of a
// document must be known before its fields are.
func (v Value) Peek(name string) Value {
	for key, value := range pairs(v.node) {
		if key.Value == name {
			return v.field(value, name)
		}
	}
	return Value{}
}

// Entries walks an object whose keys are names that the user chose. An entry has the
// path `parent["name"]`.
func (v Value) Entries() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		if !v.IsObject() {
			v.Expected("an object")
		}
		seen := make(map[string]bool)
		for key, value := range pairs(v.node) {
			name := key.Value
			entry := Value{value, fmt.Sprintf("%s[%s]", v.path, faults.Quote(name)), v.file}
			if seen[name] {
				entry.Fault("", "expected the name once, found it again")
				continue
			}
			seen[name] = true
			if !yield(name, entry) {
				return
			}
		}
	}
}

// Items reads a list.
func (v Value) Items() []Value {
	if v.unset() {
		return nil
	}
	return v.Elements("a list")
}

// Elements reads a list that must be there. what describes it in the fault.
func (v Value) Elements(what string) []Value {
	v.expect(Shape{Kind: KindList})
	if !v.IsList() {
		v.Expected(what)
		return nil
	}
	items := make([]Value, len(v.node.Content))
	for i, n := range v.node.Content {
		items[i] = Value{n, v.path + "[" + strconv.Itoa(i) + "]", v.file}
	}
	return items
}

// NonEmpty is Elements for a list that must not be empty.
func (v Value) NonEmpty(what string) []Value {
	items := v.Elements(what)
	v.expect(Shape{Kind: KindList, NonEmpty: true})
	if v.IsList() && len(items) == 0 {
		v.Fault("", "expected %s, found an empty list", what)
	}
	return items
}
