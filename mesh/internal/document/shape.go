package document

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Shape is what a reader expects of a value. ShapeOf learns it from the reader itself, so that a schema for other programs
// cannot say anything else.
type Shape struct {
	Kind Kind
	// Fields are those of an object that the example has, Known all that the reader knows. Both are empty if the names of
	// the fields are the user's.
	Fields map[string]*Shape
	Known  []string
	// Required are the fields that the reader missed in no example and would miss.
	Required []string
	// Item is that of a list's items, or of an object's fields whose names are the user's. NonEmpty says that a list needs one.
	Item     *Shape
	NonEmpty bool
	// Choices are the strings that are allowed; empty: all. Strings match Pattern and have at most MaxLength bytes; zero: any string, of
	// any length.
	Choices   []string
	Pattern   string
	MaxLength int
	// Whole says that a number is an integer. Low and High bound it.
	Whole     bool
	Low, High float64
	// Comment is above the field in the example.
	Comment string
}

// ShapeOf has a reader read an example, a single document, and returns what it expects. The example has to have every field that is
// wanted in the Shape, and no error.
func ShapeOf(name string, example []byte, read func(Value, *Faults)) (*Shape, error) {
	var faults Faults
	documents := Parse(name, example, &faults)
	if len(documents) != 1 || faults.Err() != nil {
		return nil, fmt.Errorf("%s has %d documents, want one: %w", name, len(documents), faults.Err())
	}
	doc := documents[0]
	doc.file.shapes = make(map[*yaml.Node]*Shape)
	read(doc, &faults)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	return doc.file.shapeOf(doc.node, strings.Split(string(example), "\n")), nil
}

// expect notes what a reader expects of the value, for ShapeOf.
func (v Value) expect(s Shape) {
	if v.node == nil || v.file.shapes == nil {
		return
	}
	noted := s // of s no pointer is taken: each value that is read for no Shape would cost an allocation
	if before := v.file.shapes[v.node]; before != nil {
		noted = before.join(s)
	}
	v.file.shapes[v.node] = &noted
}

// join returns what two readers of one value expect.
func (s *Shape) join(o Shape) Shape {
	o.Known = union(s.Known, o.Known)
	o.Required = union(s.Required, o.Required)
	o.Choices = union(s.Choices, o.Choices)
	o.Pattern, o.MaxLength = cmp.Or(s.Pattern, o.Pattern), cmp.Or(s.MaxLength, o.MaxLength)
	o.NonEmpty = s.NonEmpty || o.NonEmpty
	return o
}

func union(a, b []string) []string {
	return append(slices.Clone(a), slices.DeleteFunc(slices.Clone(b), func(s string) bool { return slices.Contains(a, s) })...)
}

// shapeOf returns the shape of a value with all that is in it.
func (s *source) shapeOf(n *yaml.Node, lines []string) *Shape {
	shape := &Shape{}
	if noted := s.shapes[n]; noted != nil {
		shape = noted
	}
	for key, value := range pairs(n) {
		field := s.shapeOf(value, lines)
		if len(shape.Known) == 0 {
			shape.Item = shape.Item.like(field)
			continue
		}
		field.Comment = commentAbove(lines, key)
		if shape.Fields == nil {
			shape.Fields = make(map[string]*Shape)
		}
		shape.Fields[key.Value] = field
	}
	if n.Kind == yaml.SequenceNode {
		for _, item := range n.Content {
			shape.Item = shape.Item.like(s.shapeOf(item, lines))
		}
	}
	return shape
}

// like returns the shape of values of which two are examples. s may be nil.
func (s *Shape) like(o *Shape) *Shape {
	if s == nil {
		return o
	}
	if o == nil {
		return s
	}
	if s.Kind != o.Kind {
		return &Shape{} // a value of several kinds
	}
	joined := s.join(*o)
	joined.Required = slices.DeleteFunc(joined.Required, func(name string) bool {
		return !slices.Contains(s.Required, name) || !slices.Contains(o.Required, name)
	})
	joined.Item = s.Item.like(o.Item)
	joined.Fields = maps.Clone(s.Fields)
	for name, field := range o.Fields {
		if joined.Fields == nil {
			joined.Fields = make(map[string]*Shape)
		}
		joined.Fields[name] = joined.Fields[name].like(field)
	}
	joined.Comment = cmp.Or(s.Comment, o.Comment)
	return &joined
}

// commentAbove returns the comment on the lines above a key, if the key is the first one on its line.
func commentAbove(lines []string, key *yaml.Node) string {
	at := key.Line - 1
	if strings.Trim(lines[at][:key.Column-1], " -") != "" {
		return ""
	}
	var comment []string
	for at--; at >= 0; at-- {
		text, found := strings.CutPrefix(strings.TrimSpace(lines[at]), "#")
		if !found {
			break
		}
		comment = append(comment, strings.TrimSpace(text))
	}
	slices.Reverse(comment)
	return strings.Join(comment, " ")
}
