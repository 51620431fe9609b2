package document

import (
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/dynxds/dynxds/internal/faults"
)

// AtColumn returns what in v a column of its JSON is about: a value, or the name of a
// field, which has the path of its object, as in faults of unknown fields. Columns count
// characters of what JSON returns, from 1; for one that is outside, v is returned. It is
// for the faults of those who read that JSON.
func (v Value) AtColumn(column int) Value {
	if v.node == nil || column < 1 {
		return v
	}
	switch v.node.Kind {
	case yaml.MappingNode:
		return v.fieldAtColumn(column)
	case yaml.SequenceNode:
		begin := 2 // after the bracket
		for _, item := range v.Items() {
			end := begin + width(item.node)
			if begin <= column && column < end {
				return item.AtColumn(column - begin + 1)
			}
			begin = end + 1 // and the comma
		}
	}
	return v
}

func (v Value) fieldAtColumn(column int) Value {
	begin := 2
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key, value := v.node.Content[i], v.node.Content[i+1]
		colon := begin + utf8.RuneCount(appendString(nil, key.Value))
		end := colon + 1 + width(value)
		switch {
		case begin <= column && column <= colon:
			return Value{key, v.path, v.file}
		case colon < column && column < end:
			return Value{value, faults.Join(v.path, key.Value), v.file}.AtColumn(column - colon)
		}
		begin = end + 1
	}
	return v
}

// width is how many characters of JSON a node has.
func width(n *yaml.Node) int { return utf8.RuneCount(appendJSON(nil, n)) }
