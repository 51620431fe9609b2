package document

import (
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// AtColumn returns the part of v at a column of its JSON: a value, or the name of a field,
// which has the path of its object, as in errors of unknown fields. Columns count characters
// of what JSON returns, from 1; if one is outside, v is returned. Readers of that JSON use it
// to report their errors.
func (v Value) AtColumn(column int) Value {
	begin := 2 // after the bracket
	for key, value := range pairs(v.node) {
		colon := begin + utf8.RuneCount(appendString(nil, key.Value))
		end := colon + 1 + width(value)
		switch {
		case begin <= column && column <= colon:
			return Value{key, v.path, v.file}
		case colon < column && column < end:
			return v.field(value, key.Value).AtColumn(column - colon)
		}
		begin = end + 1 // and the comma
	}
	if !v.IsList() {
		return v
	}
	for _, item := range v.Items() {
		end := begin + width(item.node)
		if begin <= column && column < end {
			return item.AtColumn(column - begin + 1)
		}
		begin = end + 1
	}
	return v
}

// width is the number of characters in the JSON of a node.
func width(n *yaml.Node) int { return utf8.RuneCount(appendJSON(nil, n)) }
