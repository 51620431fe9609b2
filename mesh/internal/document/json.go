package document

import (
	"bytes"
	"encoding/json"
	"io"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseJSON reads JSON into the nodes of YAML, which lacks a few of its escapes and tabs.
// It returns nil if the text is not one JSON value, or is nested deeper than documents may
// be; the YAML parser then says what is wrong.
func parseJSON(text []byte) *yaml.Node {
	r := newJSONReader(text)
	root := r.value(maxDepth + 1)
	if root == nil {
		return nil
	}
	if _, err := r.decoder.Token(); err != io.EOF {
		return nil
	}
	return root
}

type jsonReader struct {
	decoder *json.Decoder
	// lines are the offsets of line ends.
	lines []int
}

func newJSONReader(text []byte) *jsonReader {
	r := &jsonReader{decoder: json.NewDecoder(bytes.NewReader(text))}
	r.decoder.UseNumber()
	for i, c := range text {
		if c == '\n' {
			r.lines = append(r.lines, i)
		}
	}
	return r
}

// value reads a value, or returns nil.
func (r *jsonReader) value(depth int) *yaml.Node {
	token, err := r.decoder.Token()
	if err != nil || depth == 0 {
		return nil
	}
	n := &yaml.Node{Line: 1 + sort.SearchInts(r.lines, int(r.decoder.InputOffset())-1), Kind: yaml.ScalarNode}
	switch token := token.(type) {
	case json.Delim:
		n.Kind = yaml.SequenceNode
		if token == '{' {
			n.Kind = yaml.MappingNode
		}
		return r.content(n, depth)
	case string:
		n.Tag, n.Value = "!!str", token
	case json.Number:
		n.Tag, n.Value = numberTag(token.String()), token.String()
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(token)
	default:
		n.Tag = "!!null"
	}
	return n
}

// content reads the content of an object, keys and values in turn, or of a list.
func (r *jsonReader) content(n *yaml.Node, depth int) *yaml.Node {
	for r.decoder.More() {
		child := r.value(depth - 1)
		if child == nil {
			return nil
		}
		n.Content = append(n.Content, child)
	}
	if _, err := r.decoder.Token(); err != nil {
		return nil
	}
	return n
}

func numberTag(text string) string {
	if bytes.ContainsAny([]byte(text), ".eE") {
		return "!!float"
	}
	return "!!int"
}

// JSON returns the value as JSON, for readers with a schema of their own, such as
// protojson. It is nil if the value is absent. Numbers keep their digits; those that JSON
// does not have become decimal (0x10) or strings (.inf).
func (v Value) JSON() []byte {
	if v.node == nil {
		return nil
	}
	return appendJSON(nil, v.node)
}

func appendJSON(b []byte, n *yaml.Node) []byte {
	switch n.Kind {
	case yaml.MappingNode:
		b = append(b, '{')
		separator := ""
		for key, value := range pairs(n) {
			b = append(appendString(append(b, separator...), key.Value), ':')
			b, separator = appendJSON(b, value), ","
		}
		return append(b, '}')
	case yaml.SequenceNode:
		b = append(b, '[')
		for i, item := range n.Content {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(b, item)
		}
		return append(b, ']')
	default:
		return appendScalar(b, n)
	}
}

func appendScalar(b []byte, n *yaml.Node) []byte {
	switch n.Tag {
	case "!!null":
		return append(b, "null"...)
	case "!!bool":
		return strconv.AppendBool(b, strings.EqualFold(n.Value, "true"))
	case "!!int", "!!float":
		if json.Valid([]byte(n.Value)) {
			return append(b, n.Value...)
		}
		var number any
		if err := n.Decode(&number); err == nil {
			if text, err := json.Marshal(number); err == nil {
				return append(b, text...)
			}
		}
	}
	return appendString(b, n.Value)
}

func appendString(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // impossible: Parse found the string to be UTF-8
	}
	return append(b, text...)
}
