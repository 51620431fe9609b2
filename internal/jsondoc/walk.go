package jsondoc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/dynxds/dynxds/internal/faults"
)

// Object is a value with named fields.
type Object struct {
	Value
	fields map[string]Value
	order  []string
}

// Object reads an object. The result has the known fields, and ignores any other. If known is
// empty, all fields are known.
func (v Value) Object(known ...string) Object {
	o := Object{Value: v, fields: make(map[string]Value)}
	if v.Present() && !v.IsObject() {
		v.Expected("an object")
	}
	for name, raw := range v.members() {
		field := v.field(raw, name)
		switch _, twice := o.fields[name]; {
		case len(known) > 0 && !slices.Contains(known, name):
			v.from.ignore(v.path, name, known)
		case twice:
			field.Fault("", "expected the key once, found it again")
		default:
			o.fields[name] = field
			o.order = append(o.order, name)
		}
	}
	return o
}

// members returns the keys of an object with their values. Any other value has none.
func (v Value) members() iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		if !v.IsObject() {
			return
		}
		decoder := json.NewDecoder(bytes.NewReader(v.raw))
		_, _ = decoder.Token() // the bracket; Parse has checked all of it
		for decoder.More() {
			key, _ := decoder.Token()
			var raw json.RawMessage
			_ = decoder.Decode(&raw)
			if !yield(key.(string), raw) {
				return
			}
		}
	}
}

// field returns a value inside v.
func (v Value) field(raw json.RawMessage, name string) Value {
	return Value{raw, faults.Join(v.path, name), v.from}
}

// Field returns the value of a field.
func (o Object) Field(name string) Value {
	if field, ok := o.fields[name]; ok {
		return field
	}
	return o.field(nil, name)
}

// ProtoField returns a field of a message in proto JSON form, in which a name of several
// words has two spellings. It is an error if both are there.
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

// Names returns the names of the fields that are there, in the order of the text.
func (o Object) Names() []string { return slices.Clone(o.order) }

// Peek returns the first field of that name and ignores the others.
func (v Value) Peek(name string) Value {
	for key, raw := range v.members() {
		if key == name {
			return v.field(raw, name)
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
		for name, raw := range v.members() {
			entry := Value{raw, fmt.Sprintf("%s[%s]", v.path, faults.Quote(name)), v.from}
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
	if v.Absent() {
		return nil
	}
	return v.Elements("a list")
}

// Elements reads a list that must be there. what describes it in the error.
func (v Value) Elements(what string) []Value {
	if !v.IsList() {
		v.Expected(what)
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

// NonEmpty is Elements for a list that must not be empty.
func (v Value) NonEmpty(what string) []Value {
	items := v.Elements(what)
	if v.IsList() && len(items) == 0 {
		v.Fault("", "expected %s, found an empty list", what)
	}
	return items
}
