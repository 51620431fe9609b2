package document

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dynxds/dynxds/internal/jsondoc"
)

var yamlErrorLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// syntaxError explains why a document cannot be parsed. err is the YAML library's. The line
// is relative to the document; 0 means unknown.
func (s *source) syntaxError(text []byte, err error) (line int, problem, suggestion string) {
	if filepath.Ext(s.name) == ".json" {
		if line, _, err := jsondoc.Check(text); err != nil {
			return line, "this is not JSON: " + err.Error(), ""
		}
	}
	line, problem = yamlError(err)
	// The library names the line before a tab, or none.
	if tab, ok := tabIndented(text, line); ok && (strings.Contains(problem, "tab character") || strings.Contains(problem, "cannot start any token")) {
		return tab, "this is not YAML: a tab in the indentation", "use spaces"
	}
	if at := brokenLine(text); at > 0 {
		line, suggestion = explainLine(text, at, problem)
	}
	return line, "this is not YAML: " + problem, suggestion
}

// maxSearch bounds the search for a broken line, in lines times bytes of a document.
const maxSearch = 8 << 20

// brokenLine returns the first line with which the document cannot be parsed, however it goes on: the library names the line where the
// structure around the error began, or the one where it gave up. 0 means unknown.
func brokenLine(text []byte) int {
	lines := bytes.SplitAfter(text, []byte("\n"))
	if len(lines)*len(text) > maxSearch {
		return 0
	}
	end := len(text)
	// Within brackets and quotes a part of a good document cannot be parsed, so the search begins at the end.
	for line := len(lines); line > 0; line-- {
		end -= len(lines[line-1])
		if yaml.Unmarshal(text[:end], new(yaml.Node)) == nil {
			return line
		}
	}
	return 0
}

const (
	colonMissing = "write a colon and a blank after the name of a field"
	misindented  = "indent it as the lines that it belongs to"
)

// explainLine returns what to do about a broken line; the line is the one before if that made it wrong.
func explainLine(text []byte, broken int, problem string) (line int, suggestion string) {
	lines := strings.Split(string(text), "\n")
	at := strings.TrimSpace(lines[broken-1])
	switch {
	case strings.Count(at, `"`)%2 == 1 || strings.Count(at, "'")%2 == 1:
		return broken, "close the quote"
	case strings.Contains(problem, "',' or"):
		return broken, "close the bracket"
	case strings.Contains(problem, "expected ':'"):
		return broken, colonMissing
	case strings.Contains(problem, "mapping values") && broken > 1 && isBare(lines[broken-2]):
		return broken - 1, colonMissing
	case strings.Contains(problem, "mapping values") && strings.Count(at, ": ") > 1:
		return broken, "put the text with a colon in quotes"
	case strings.Contains(problem, "mapping values"), strings.Contains(problem, "expected key"), strings.Contains(problem, "'-' indicator"):
		return broken, misindented
	}
	return broken, ""
}

// isBare reports whether a line has a text that is not the value of a field.
func isBare(line string) bool {
	line, _, _ = strings.Cut(line, " #")
	line = strings.TrimSpace(line)
	return line != "" && line[0] != '#' && !strings.Contains(line, ": ") && !strings.HasSuffix(line, ":")
}

// yamlError splits an error of the YAML library into line and problem.
func yamlError(err error) (line int, problem string) {
	m := yamlErrorLine.FindStringSubmatch(err.Error())
	if m == nil {
		return 0, err.Error()
	}
	line, _ = strconv.Atoi(m[1])
	return line, m[2]
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
