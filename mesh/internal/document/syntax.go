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

// syntaxError explains why a document cannot be parsed. err is the YAML library's. The line
// is relative to the document; 0 means unknown.
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

// yamlError splits an error of the YAML library into line and problem.
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

// aboutTab reports whether a problem of the YAML library may be due to a tab.
func aboutTab(problem string) bool {
	return strings.Contains(problem, "tab character") || strings.Contains(problem, "cannot start any token")
}

// tabIndented finds a tab in the indentation of the line from, or of the one after it.
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

// jsonError returns the syntax error of a text that is meant to be JSON. ok is false if
// there is none.
func jsonError(text []byte) (line int, problem string, ok bool) {
	var value any
	var syntax *json.SyntaxError
	if err := json.Unmarshal(text, &value); !errors.As(err, &syntax) {
		return 0, "", false
	}
	line, _ = position(text, syntax)
	return line, syntax.Error(), true
}

// position returns the line and column of a syntax error, from 1.
func position(text []byte, err *json.SyntaxError) (line, column int) {
	// The offset is one past the character.
	before := text[:min(len(text), max(0, int(err.Offset)-1))]
	line = 1 + bytes.Count(before, []byte("\n"))
	return line, 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
}
