package document

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dynxds/dynxds/internal/faults"
)

// fromJSON returns the root of JSON, and nil for any other text. Strings of JSON may have what those of YAML read otherwise, or not at all.
func fromJSON(text []byte) *yaml.Node {
	if !json.Valid(text) {
		return nil
	}
	r := jsonReader{text: text, decoder: json.NewDecoder(bytes.NewReader(text)), line: 1}
	return r.value()
}

// jsonReader makes nodes of valid JSON.
type jsonReader struct {
	text    []byte
	decoder *json.Decoder
	// line is that of the offset at.
	line, at int
}

// value reads a value, or the key of one.
func (r *jsonReader) value() *yaml.Node {
	token, _ := r.decoder.Token() // the text is valid
	written := string(r.text[r.at:r.decoder.InputOffset()])
	r.line, r.at = r.line+strings.Count(written, "\n"), r.at+len(written)
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line}
	switch token := token.(type) {
	case json.Delim:
		n.Kind = map[json.Delim]yaml.Kind{'{': yaml.MappingNode, '[': yaml.SequenceNode}[token]
		for r.decoder.More() {
			n.Content = append(n.Content, r.value())
		}
		_, _ = r.decoder.Token() // the other bracket
	case string:
		n.Value, n.Style = token, yaml.DoubleQuotedStyle
	default:
		n.Value = strings.TrimLeft(written, " \t\r\n,:]}")
	}
	n.Tag = n.ShortTag()
	return n
}

// JSON returns the value as JSON, for readers with a schema of their own, such as protojson. Each name of a field and each value has a line for
// itself, and at returns the part of the document on a line, from 1; a name has the path of its object, as in errors of unknown fields. Numbers
// keep their digits; those that JSON does not have become decimal (0x10) or strings (.inf).
func (v Value) JSON() (text []byte, at func(line int) Value) {
	var w jsonWriter
	w.value(v.node, func() string { return v.path })
	return w.text, func(line int) Value {
		if line < 1 || line > len(w.lines) {
			return v
		}
		return Value{w.lines[line-1].node, w.lines[line-1].path(), v.file}
	}
}

type jsonWriter struct {
	text  []byte
	lines []jsonLine
}

// jsonLine is what is on a line. Its path is made when it is asked for: all paths may be much longer than the document.
type jsonLine struct {
	node *yaml.Node
	path func() string
}

func (w *jsonWriter) line(n *yaml.Node, path func() string, text ...string) {
	w.text = append(append(w.text, strings.Join(text, "")...), '\n')
	w.lines = append(w.lines, jsonLine{n, path})
}

func (w *jsonWriter) value(n *yaml.Node, path func() string) {
	separator := ""
	switch n.Kind {
	case yaml.MappingNode:
		w.line(n, path, "{")
		for key, value := range pairs(n) {
			w.line(key, path, separator, quote(key.Value), ":")
			w.value(value, func() string { return faults.Join(path(), key.Value) })
			separator = ","
		}
		w.line(n, path, "}")
	case yaml.SequenceNode:
		w.line(n, path, "[")
		for i, item := range n.Content {
			w.line(n, path, separator)
			w.value(item, func() string { return path() + "[" + strconv.Itoa(i) + "]" })
			separator = ","
		}
		w.line(n, path, "]")
	default:
		w.line(n, path, scalar(n))
	}
}

func scalar(n *yaml.Node) string {
	switch n.Tag {
	case "!!null":
		return "null"
	case "!!bool":
		return strings.ToLower(n.Value)
	case "!!int", "!!float":
		if json.Valid([]byte(n.Value)) {
			return n.Value
		}
		var number any
		if err := n.Decode(&number); err == nil {
			if text, err := json.Marshal(number); err == nil {
				return string(text)
			}
		}
	}
	return quote(n.Value)
}

func quote(s string) string {
	text, _ := json.Marshal(s) // which takes any string
	return string(text)
}
