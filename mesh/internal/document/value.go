package document

import (
	"cmp"
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

// Value is what was found at a place in a document. The zero Value is absent: methods treat it as empty, and report no error,
// as it has no place.
//
// The methods here describe a value and report errors of it. Those of scalar.go read a
// string, a number or a boolean, those of walk.go an object or a list, and those of
// json.go return JSON for readers with a schema of their own.
type Value struct {
	node *yaml.Node
	path string
	file *source
}

// The kinds of values, worded for errors.
const (
	kindNothing = "nothing" // the value is absent, or null
	kindObject  = "an object"
	kindList    = "a list"
	kindText    = "a string"
	kindNumber  = "a number"
	kindBoolean = "a boolean"
)

// kinds are the kinds of values by their tags in YAML. Values with other tags are written as text.
var kinds = map[string]string{
	"!!map": kindObject, "!!seq": kindList, "!!bool": kindBoolean, "!!int": kindNumber, "!!float": kindNumber, "!!null": kindNothing,
}

// kind returns the kind of the value.
func (v Value) kind() string {
	if v.node == nil {
		return kindNothing
	}
	return cmp.Or(kinds[v.node.Tag], kindText)
}

// Present reports whether the value is there at all. An explicit null is, in a list or as a required field.
func (v Value) Present() bool { return v.node != nil }

// Absent reports whether there is no value: no field, or an explicit null.
func (v Value) Absent() bool { return v.kind() == kindNothing }

// IsObject reports whether the value is an object (YAML: a mapping).
func (v Value) IsObject() bool { return v.kind() == kindObject }

// IsList reports whether the value is a list.
func (v Value) IsList() bool { return v.kind() == kindList }

// IsText reports whether the value is a string. A date, which YAML tells from a string,
// is not.
func (v Value) IsText() bool { return v.kind() == kindText && v.node.Tag == "!!str" }

// Position returns the file, the line and the path of the value, in a Fault without a problem. It is zero if the value is absent.
func (v Value) Position() Fault {
	if v.node == nil {
		return Fault{}
	}
	return Fault{File: v.file.name, Line: v.node.Line, Path: v.path}
}

// Fault reports an error of this value, if it is there. suggestion may be empty.
func (v Value) Fault(suggestion, problem string, args ...any) {
	if v.file != nil {
		v.file.fault(v.node.Line, v.path, fmt.Sprintf(problem, args...), suggestion)
	}
}

// Try calls read, and returns the first error that it reports, without file and line, or "" if there is none. The value must not be absent.
func (v Value) Try(read func()) (problem string) {
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
	found, suggestion := v.kind(), ""
	if found != kindNothing && v.node.Kind == yaml.ScalarNode {
		quoted := faults.Quote(v.node.Value)
		if what == "a string" {
			suggestion = fmt.Sprintf("put it in quotes: %q", v.node.Value)
		}
		if found = "the " + strings.TrimPrefix(found, "a ") + " " + quoted; v.kind() == kindText && !v.IsText() {
			found = quoted
		}
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
