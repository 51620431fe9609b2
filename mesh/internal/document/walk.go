package document

import (
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
	// open says that all fields are known.
	open bool
}

// Object reads an object. The result has the known fields; any other field is an error. If known is
// empty, all fields are known. A known field that is null is absent, as in Kubernetes; where the names are the
// user's, a null stays for the reader to report.
func (v Value) Object(known ...string) Object {
	o := Object{Value: v, fields: map[string]Value{}, open: len(known) == 0}
	if !v.IsObject() {
		v.Expected("an object")
	}
	for key, value := range pairs(v.node) {
		name := key.Value
		switch _, twice := o.fields[name]; {
		case key.Kind != yaml.ScalarNode:
			Value{key, v.path, v.file}.Fault("", "the name of a field must be text")
		case len(known) > 0 && !slices.Contains(known, name):
			v.file.unknown.Add(Fault{
				File: v.file.name, Line: key.Line, Path: v.path,
				Problem: "unknown field " + faults.Quote(name), Suggestion: faults.DidYouMean(name, known),
			})
		case twice:
			v.field(key, name).Fault("", "expected the key once, found it again")
		default:
			o.fields[name] = v.field(value, name)
			if o.open || !isNull(value) {
				o.order = append(o.order, name)
			}
		}
	}
	return o
}

// Field returns the value of a field.
func (o Object) Field(name string) Value {
	f := o.fields[name]
	if !o.open && f.Absent() {
		return Value{}
	}
	return f
}

// Require returns the value of a field that must be there. A null is returned, so that the reader reports its line.
func (o Object) Require(name string) Value {
	f := o.fields[name]
	if !f.Present() && o.IsObject() {
		o.Fault("", "the field %q is missing", name)
	}
	return f
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
	for _, name := range o.order {
		texts[name] = o.fields[name].Text()
	}
	return texts
}

// Peek returns the first field of that name and ignores the others: the kind of a
// document must be known before its fields are. A null is absent.
func (v Value) Peek(name string) Value {
	for key, value := range pairs(v.node) {
		if key.Value == name && !isNull(value) {
			return v.field(value, name)
		}
	}
	return Value{}
}

// Items reads a list.
func (v Value) Items() []Value { return v.items("a list") }

func (v Value) items(what string) []Value {
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

// NonEmpty is Items for a list that must not be empty. what describes it in the error.
func (v Value) NonEmpty(what string) []Value {
	items := v.items(what)
	if v.IsList() && len(items) == 0 {
		v.Fault("", "expected %s, found an empty list", what)
	}
	return items
}
