package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxJSONDepth is the depth that encoding/json has for any text.
const maxJSONDepth = 10_000

// ParseJSON returns the value of a JSON text, or an error that says why, and where, the
// text is not JSON. It is for formats of gRPC and protobuf, and more lenient than [Parse]:
// fields that Object does not know are ignored, and an explicit null is the same as no
// field. As the text may have secrets in it, faults show none of its values; and they have
// no line. The value keeps the text.
func ParseJSON(text []byte, faults *Faults) (Value, error) {
	var checked json.RawMessage
	err := json.Unmarshal(text, &checked)
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		line, column := position(text, syntax)
		return Value{}, fmt.Errorf("not JSON: line %d, column %d: %w", line, column, syntax)
	} else if err != nil {
		return Value{}, err
	}
	root := newJSONReader(text).value(maxJSONDepth + 1)
	return Value{node: root, file: &source{faults: faults, lenient: true, text: text}}, nil
}

// JSON is YAML but for a few escapes and tabs. What is JSON is therefore read as
// such, into the same nodes.

// parseJSON returns nil if the text is not one JSON value, or is nested deeper than
// documents may be; then it is for the YAML parser to say what is wrong.
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
	text    []byte
	decoder *json.Decoder
	// lines has the offsets of the ends of lines.
	lines []int
}

func newJSONReader(text []byte) *jsonReader {
	r := &jsonReader{text: text, decoder: json.NewDecoder(bytes.NewReader(text))}
	r.decoder.UseNumber()
	for i, c := range text {
		if c == '\n' {
			r.lines = append(r.lines, i)
		}
	}
	return r
}

// value reads a value, or returns nil. The Column of its node is its offset in the text.
func (r *jsonReader) value(depth int) *yaml.Node {
	begin := int(r.decoder.InputOffset())
	token, err := r.decoder.Token()
	if err != nil || depth == 0 {
		return nil
	}
	for bytes.IndexByte([]byte(" \t\r\n,:"), r.text[begin]) >= 0 {
		begin++
	}
	n := &yaml.Node{Line: 1 + sort.SearchInts(r.lines, int(r.decoder.InputOffset())-1), Column: begin, Kind: yaml.ScalarNode}
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

// content reads what is in an object or a list. An object has keys and values in
// turn.
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

// Raw returns the value as it is written in the text that ParseJSON read, or nil if it is
// not there.
func (v Value) Raw() json.RawMessage {
	if v.node == nil {
		return nil
	}
	var raw json.RawMessage
	if err := json.NewDecoder(bytes.NewReader(v.file.text[v.node.Column:])).Decode(&raw); err != nil {
		panic(err) // not for a value that was read before
	}
	return raw
}

// JSON returns the value as JSON, for readers with a schema of their own, such as
// protojson. It is nil if the value is not there. Numbers keep their digits; those
// that JSON does not have (.inf, 0x10) become strings or decimal.
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
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, n.Content[i].Value), ':')
			b = appendJSON(b, n.Content[i+1])
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
		// Not for a string, which Parse found to be UTF-8.
		panic(err)
	}
	return append(b, text...)
}
