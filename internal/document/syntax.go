package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

var yamlErrorLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// syntaxError says what is wrong with a document that cannot be read, for which the
// YAML library gave the error. The line counts within the document, 0: unknown.
func (s *source) syntaxError(text []byte, err error) (line int, problem, suggestion string) {
	if filepath.Ext(s.name) == ".json" {
		if line, problem, ok := jsonError(text); ok {
			return line, "this is not JSON: " + problem, ""
		}
	}
	line, problem = yamlError(err)
	// The library names the line before a tab, or none.
	if tab, ok := tabIndented(text, line); ok && aboutTab(problem) {
		return tab, "this is not YAML: a tab in the indentation", "use spaces"
	}
	return line, "this is not YAML: " + problem, ""
}

// yamlError takes the line out of an error of the YAML library.
func yamlError(err error) (line int, problem string) {
	var typeError *yaml.TypeError
	if errors.As(err, &typeError) && len(typeError.Errors) > 0 {
		return 0, typeError.Errors[0]
	}
	m := yamlErrorLine.FindStringSubmatch(err.Error())
	if m == nil {
		return 0, err.Error()
	}
	line, _ = strconv.Atoi(m[1])
	return line, m[2]
}

// aboutTab reports whether a tab can be what the YAML library complains of.
func aboutTab(problem string) bool {
	return strings.Contains(problem, "tab character") || strings.Contains(problem, "cannot start any token")
}

// tabIndented finds a line whose indentation has a tab: the line from, or the one after it.
func tabIndented(text []byte, from int) (line int, found bool) {
	from = max(from, 1)
	for at := range bytes.Lines(text) {
		line++
		indentation := at[:len(at)-len(bytes.TrimLeft(at, " \t"))]
		if line >= from && bytes.IndexByte(indentation, '\t') >= 0 {
			return line, true
		}
		if line > from {
			break
		}
	}
	return 0, false
}

// jsonError says what is wrong with a text that is meant to be JSON. ok is false if it
// is JSON.
func jsonError(text []byte) (line int, problem string, ok bool) {
	var value any
	var syntax *json.SyntaxError
	if err := json.Unmarshal(text, &value); !errors.As(err, &syntax) {
		return 0, "", false
	}
	line, _ = position(text, syntax)
	return line, syntax.Error(), true
}

// position returns where the character is that the error is about, counted from 1.
func position(text []byte, err *json.SyntaxError) (line, column int) {
	// The offset is behind the character.
	before := text[:min(len(text), max(0, int(err.Offset)-1))]
	line = 1 + bytes.Count(before, []byte("\n"))
	return line, 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
}
