package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/dynxds/dynxds/internal/faults"
)

// notYAML matches what strings of JSON may have and those of YAML read otherwise or not at all: \/ and surrogates, alone or in a pair, and
// characters that are no text to YAML, or end a line. Other escapes are matched so that no match begins inside of one.
var notYAML = regexp.MustCompile(`\\u[dD][89a-fA-F]..(?:\\u[dD][c-fC-F]..)?|\\.|[\x{7f}-\x{9f}\x{2028}\x{2029}\x{feff}\x{fffe}\x{ffff}]`)

// asYAML returns JSON as YAML, with the same lines. Any other text stays as it is.
func asYAML(text []byte) []byte {
	if start := bytes.TrimLeft(text, " \t\r\n"); len(start) == 0 || start[0] != '{' || !notYAML.Match(text) || !json.Valid(text) {
		return text
	}
	return notYAML.ReplaceAllFunc(text, func(found []byte) []byte {
		switch {
		case found[0] != '\\':
			char, _ := utf8.DecodeRune(found)
			return fmt.Appendf(nil, `\u%04x`, char)
		case len(found) > len(`\n`), found[1] == '/':
			var char string
			if json.Unmarshal([]byte(`"`+string(found)+`"`), &char) == nil {
				return []byte(char)
			}
		}
		return found
	})
}

// keys matches strings of JSON, with the colon behind those that are keys.
var keys = regexp.MustCompile(`"(?:[^"\\]|\\.)*"(?:\s*:)?`)

// withExplicitKeys returns JSON as YAML that may have a key of any length, with the colon on another line, and tabs wherever JSON may.
// Few documents need it.
func withExplicitKeys(text []byte) []byte {
	return keys.ReplaceAllFunc(bytes.ReplaceAll(bytes.TrimRight(text, " \t\r\n"), []byte("\t"), []byte(" ")), func(found []byte) []byte {
		if bytes.HasSuffix(found, []byte(":")) {
			return append([]byte("? "), found...)
		}
		return found
	})
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
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // impossible: a string is always JSON
	}
	return string(text)
}
