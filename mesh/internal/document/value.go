package document

import (
	"fmt"
	"iter"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dynxds/dynxds/internal/faults"
)

type (
	// Fault is one mistake in a document.
	Fault = faults.Fault
	// Faults are the mistakes in documents.
	Faults = faults.Faults
)

// Value is a place in a document and what was found there. The zero Value is absent:
// methods treat it as empty, and report no error unless they say that the value is
// required.
//
// The methods here describe a value and report errors of it. Those of scalar.go read a
// string, a number or a boolean, those of walk.go an object or a list, and those of
// json.go return JSON for readers with a schema of their own.
type Value struct {
	node *yaml.Node
	path string
	file *source
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

// Kind returns the kind of the value.
func (v Value) Kind() Kind {
	switch {
	case v.node == nil:
		return KindNothing
	case v.node.Kind == yaml.MappingNode:
		return KindObject
	case v.node.Kind == yaml.SequenceNode:
		return KindList
	}
	switch v.node.Tag {
	case "!!null":
		return KindNull
	case "!!bool":
		return KindBool
	case "!!int", "!!float":
		return KindNumber
	default:
		return KindText
	}
}

// Present reports whether the value is there at all. An explicit null is, in a list or as a required field.
func (v Value) Present() bool { return v.node != nil }

// Absent reports whether there is no value: no field, or an explicit null.
func (v Value) Absent() bool { return v.node == nil || v.Kind() == KindNull }

// IsObject reports whether the value is an object (YAML: a mapping).
func (v Value) IsObject() bool { return v.Kind() == KindObject }

// IsList reports whether the value is a list.
func (v Value) IsList() bool { return v.Kind() == KindList }

// IsText reports whether the value is a string. A date, which YAML tells from a string,
// is not.
func (v Value) IsText() bool { return v.Kind() == KindText && v.node.Tag == "!!str" }

// Position returns the file, the line and the path of the value, in a Fault without a
// problem. The line is 0 if the value is absent.
func (v Value) Position() Fault {
	at := Fault{Path: v.path}
	if v.file != nil {
		at.File = v.file.name
	}
	if v.node != nil {
		at.Line = v.node.Line
	}
	return at
}

// Fault reports an error of this value. suggestion may be empty.
func (v Value) Fault(suggestion, problem string, args ...any) {
	if v.file != nil {
		v.file.fault(v.Position().Line, v.path, fmt.Sprintf(problem, args...), suggestion)
	}
}

// Try calls read, and returns the first error that it reports, without file and line, or "" if there is none.
func (v Value) Try(read func()) (problem string) {
	if v.file == nil {
		read()
		return ""
	}
	of := v.file.faults
	total, listed := of.Total(), len(of.List)
	read()
	switch {
	case of.Total() == total:
		return ""
	case len(of.List) == listed:
		return "it has one of many errors"
	}
	first := of.List[listed]
	first.File, first.Line = "", 0
	return first.String()
}

// Expected reports that the value is not what was expected.
func (v Value) Expected(what string) {
	kind := v.Kind()
	scalar := v.node != nil && v.node.Kind == yaml.ScalarNode
	found, suggestion := string(kind), ""
	switch {
	case !scalar:
	case kind == KindNull:
		found = string(KindNothing)
	case kind == KindText && !v.IsText():
		found = faults.Quote(v.node.Value)
	default:
		found = "the " + strings.TrimPrefix(found, "a ") + " " + faults.Quote(v.node.Value)
	}
	if what == "a string" && scalar && kind != KindNull {
		suggestion = fmt.Sprintf("put it in quotes: %q", v.node.Value)
	}
	v.Fault(suggestion, "expected %s, found %s", what, found)
}

// field returns a value inside v.
func (v Value) field(n *yaml.Node, name string) Value {
	return Value{n, faults.Join(v.path, name), v.file}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// pairs returns the keys of a mapping with their values. Any other node has none.
func pairs(n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		if n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i], n.Content[i+1]) {
				return
			}
		}
	}
}
