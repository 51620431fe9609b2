package document

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dynxds/dynxds/internal/faults"
)

// Value is a place in a document, with what was found there. The zero Value is one that
// is not there: methods take it for empty, and find no fault with it unless they say that
// the value is required.
type Value struct {
	node *yaml.Node
	path string
	file *source
}

// Present reports whether the value is there at all. An explicit null is.
func (v Value) Present() bool { return v.node != nil }

// IsNull reports whether the value is an explicit null, such as a field with nothing
// after its colon.
func (v Value) IsNull() bool { return v.is(yaml.ScalarNode, "!!null") }

// IsObject reports whether the value is an object (YAML: a mapping).
func (v Value) IsObject() bool { return v.node != nil && v.node.Kind == yaml.MappingNode }

// IsText reports whether the value is a string.
func (v Value) IsText() bool { return v.is(yaml.ScalarNode, "!!str") }

func (v Value) is(kind yaml.Kind, tag string) bool {
	return v.node != nil && v.node.Kind == kind && v.node.Tag == tag
}

// IsBool reports whether the value is a boolean.
func (v Value) IsBool() bool { return v.is(yaml.ScalarNode, "!!bool") }

// Absent reports whether there is no value: no field, or an explicit null.
func (v Value) Absent() bool { return !v.Present() || v.IsNull() }

// lenient reports whether ParseJSON read the document.
func (v Value) lenient() bool { return v.file != nil && v.file.lenient }

// unset reports whether there is no value where it is optional.
func (v Value) unset() bool { return v.node == nil || v.lenient() && v.IsNull() }

// Line is the line of the value in its file, from 1; 0 if it is not there.
func (v Value) Line() int {
	if v.node == nil {
		return 0
	}
	return v.node.Line
}

// File is the name of the file.
func (v Value) File() string {
	if v.file == nil {
		return ""
	}
	return v.file.name
}

// Path is the place in the document, as in Fault.
func (v Value) Path() string { return v.path }

// Fault puts a fault of this value on the list. suggestion may be empty.
func (v Value) Fault(suggestion, problem string, args ...any) {
	if v.file != nil {
		v.file.fault(v.Line(), v.path, fmt.Sprintf(problem, args...), suggestion)
	}
}

// AddFaults puts the faults of a part that was read by itself on the list. Their paths,
// which start at v, are completed.
func (v Value) AddFaults(of *Faults) {
	if v.file == nil {
		return
	}
	for _, fault := range of.List {
		v.file.fault(v.Line(), faults.Join(v.path, fault.Path), fault.Problem, fault.Suggestion)
	}
	v.file.faults.Omitted += of.Omitted
}

// Expected puts the fault on the list that the value is not what was expected.
func (v Value) Expected(what string) {
	suggestion := ""
	if what == "a string" && !v.lenient() && !v.Absent() && v.node.Kind == yaml.ScalarNode {
		suggestion = fmt.Sprintf("put it in quotes: %q", v.node.Value)
	}
	v.Fault(suggestion, "expected %s, found %s", what, v.found())
}

// Kind says what the value is, in the words of faults: "an object", "a list",
// "a string", "a number", "a boolean", "null" or, if it is not there, "nothing".
func (v Value) Kind() string {
	switch {
	case v.node == nil:
		return "nothing"
	case v.node.Kind == yaml.MappingNode:
		return "an object"
	case v.node.Kind == yaml.SequenceNode:
		return "a list"
	}
	switch v.node.Tag {
	case "!!null":
		return "null"
	case "!!bool":
		return "a boolean"
	case "!!int", "!!float":
		return "a number"
	default:
		return "a string"
	}
}

// found is the kind of the value and, where that is no secret, the value.
func (v Value) found() string {
	kind := v.Kind()
	switch {
	case v.lenient() || v.node == nil || v.node.Kind != yaml.ScalarNode:
		return kind
	case v.IsNull():
		return "nothing"
	case kind == "a string" && !v.IsText():
		return faults.Quote(v.node.Value)
	default:
		return "the " + strings.TrimPrefix(kind, "a ") + " " + faults.Quote(v.node.Value)
	}
}

// Object is a value with named fields.
type Object struct {
	Value
	fields map[string]Value
	order  []string
}

// Field returns the value of a field.
func (o Object) Field(name string) Value {
	if field, ok := o.fields[name]; ok || !o.lenient() {
		return field
	}
	return Value{nil, faults.Join(o.path, name), o.file}
}

// Names returns the names of the fields that are there, in the order of the file.
func (o Object) Names() []string { return slices.Clone(o.order) }

// Object reads an object. The result has the known fields; others are faults, unless
// ParseJSON read the document. If known is empty, all fields are known.
func (v Value) Object(known ...string) Object {
	o := Object{Value: v, fields: map[string]Value{}}
	if v.node == nil {
		return o
	}
	if v.node.Kind != yaml.MappingNode {
		v.Expected("an object")
		return o
	}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key := v.node.Content[i]
		if key.Kind != yaml.ScalarNode {
			Value{key, v.path, v.file}.Fault("", "the name of a field must be text")
			continue
		}
		if len(known) > 0 && !slices.Contains(known, key.Value) {
			if !v.lenient() {
				Value{key, v.path, v.file}.Fault(didYouMean(key.Value, known), "unknown field %s", faults.Quote(key.Value))
			}
			continue
		}
		field := Value{v.node.Content[i+1], faults.Join(v.path, key.Value), v.file}
		if _, twice := o.fields[key.Value]; twice {
			Value{key, field.path, v.file}.Fault("", "expected the key once, found it again")
			continue
		}
		o.fields[key.Value] = field
		o.order = append(o.order, key.Value)
	}
	return o
}

// Require returns the value of a field that has to be there.
func (o Object) Require(name string) Value {
	f := o.fields[name]
	if !f.Present() && o.IsObject() {
		o.Fault("", "the field %q is missing", name)
	}
	return f
}

// Items reads a list.
func (v Value) Items() []Value {
	if v.unset() {
		return nil
	}
	return v.Elements("a list")
}

// IsList reports whether the value is a list.
func (v Value) IsList() bool { return v.node != nil && v.node.Kind == yaml.SequenceNode }

// Text reads a string.
func (v Value) Text() string {
	switch {
	case v.unset():
		return ""
	case !v.IsText():
		v.Expected("a string")
		return ""
	default:
		return v.node.Value
	}
}

// OneOf reads a string that has to be one of the choices, or returns "".
func (v Value) OneOf(choices ...string) string {
	before := v.faultCount()
	text := v.Text()
	if v.node == nil || v.faultCount() > before {
		return ""
	}
	if !slices.Contains(choices, text) {
		v.Fault(didYouMean(text, choices), "unknown value %s", faults.Quote(text))
		return ""
	}
	return text
}

func (v Value) faultCount() int {
	if v.file == nil {
		return 0
	}
	return v.file.faults.Total()
}

// Uint reads an integer from low to high.
func (v Value) Uint(low, high uint64) uint64 {
	if v.node == nil {
		return 0
	}
	if v.is(yaml.ScalarNode, "!!int") {
		if n, err := strconv.ParseUint(v.node.Value, 10, 64); err == nil && low <= n && n <= high {
			return n
		}
	}
	v.Expected(fmt.Sprintf("an integer from %d to %d", low, high))
	return 0
}

// Bool reads true or false.
func (v Value) Bool() bool {
	if v.unset() {
		return false
	}
	if !v.is(yaml.ScalarNode, "!!bool") {
		v.Expected("true or false")
	}
	return v.node.Value == "true"
}

// Texts reads an object of strings. It is nil if the value is not there.
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

// Peek returns the first field of that name, without a look at the others: what kind
// a document is of has to be known before its fields are.
func (v Value) Peek(name string) Value {
	if !v.IsObject() {
		return Value{}
	}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		if v.node.Content[i].Value == name {
			return Value{v.node.Content[i+1], faults.Join(v.path, name), v.file}
		}
	}
	return Value{}
}
