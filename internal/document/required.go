package document

import (
	"fmt"
	"iter"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/dynxds/dynxds/internal/faults"
)

// What is required has a fault if it is not there, in which the caller says what it is.

// RequiredText returns a string. what describes it in the fault.
func (v Value) RequiredText(what string) (text string, ok bool) {
	if !v.IsText() {
		v.Expected(what)
		return "", false
	}
	return v.node.Value, true
}

// NonEmptyText is RequiredText for strings that have to say something.
func (v Value) NonEmptyText(what string) (text string, ok bool) {
	text, ok = v.RequiredText(what)
	if ok && text == "" {
		v.Fault("", "expected %s, found an empty string", what)
		return "", false
	}
	return text, ok
}

// Elements returns the values in a list. what describes the list in the fault.
func (v Value) Elements(what string) []Value {
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

// NonEmpty is Elements for a list that has to have one.
func (v Value) NonEmpty(what string) []Value {
	items := v.Elements(what)
	if v.IsList() && len(items) == 0 {
		v.Fault("", "expected %s, found an empty list", what)
	}
	return items
}

// Entries walks an object whose keys are names of the user's. An entry has the path
// `parent["name"]`.
func (v Value) Entries() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		if v.node == nil || v.node.Kind != yaml.MappingNode {
			v.Expected("an object")
			return
		}
		seen := make(map[string]bool)
		for i := 0; i+1 < len(v.node.Content); i += 2 {
			name := v.node.Content[i].Value
			entry := Value{v.node.Content[i+1], fmt.Sprintf("%s[%s]", v.path, faults.Quote(name)), v.file}
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
