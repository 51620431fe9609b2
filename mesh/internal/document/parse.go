package document

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	// MaxSize bounds a file, in bytes.
	MaxSize = 16 << 20

	maxDepth = 100
)

// Parse returns the documents of a file that are not empty. A document that is not YAML is
// reported in errors, and the others are still returned. JSON is read as such:
// it has a few strings that YAML lacks. Errors show the name as the file's.
func Parse(name string, data []byte, faults *Faults) []Value {
	file := &source{name: name, faults: faults, unknown: faults}
	if len(data) > MaxSize {
		faults.Add(Fault{File: name, Problem: fmt.Sprintf("the file has %d bytes, more than %d", len(data), MaxSize)})
		return nil
	}
	line := 0
	for text := range bytes.Lines(data) {
		if line++; !utf8.Valid(text) {
			faults.Add(Fault{File: name, Line: line, Problem: "the text is not UTF-8"})
			return nil
		}
	}
	var documents []Value
	for _, part := range split(data) {
		root := file.parse(part)
		if root == nil || isNull(root) {
			continue
		}
		if file.check(root, part.before, maxDepth) && file.checkOnce(root) {
			documents = append(documents, Value{node: root, file: file})
		}
	}
	return documents
}

// ParseObject returns an object of an API server, whose JSON is on one line: nothing in it has a line. Fields that its reader does not know
// yet are not in faults, but in unknown. ok is false if the object cannot be read.
func ParseObject(name string, text []byte, faults, unknown *Faults) (object Value, ok bool) {
	file, root := &source{name: name, faults: faults, unknown: unknown}, fromJSON(text)
	return Value{node: root, file: file}, file.check(root, -1, maxDepth)
}

// source is a file that is being read.
type source struct {
	name            string
	faults, unknown *Faults
}

func (s *source) fault(line int, path, problem, suggestion string) {
	s.faults.Add(Fault{File: s.name, Line: line, Path: path, Problem: problem, Suggestion: suggestion})
}

// part is the text of one document.
type part struct {
	text []byte
	// before is the number of lines before it in the file.
	before int
}

// split cuts a file at its "---" lines, so that a mistake in one document does not
// hide the others. Files that were joined may have byte order marks at the starts of lines.
func split(data []byte) []part {
	const mark = "\ufeff"
	data = bytes.TrimPrefix(bytes.ReplaceAll(data, []byte("\n"+mark), []byte("\n")), []byte(mark))
	var parts []part
	start, startLine, at, line := 0, 0, 0, 0
	for text := range bytes.Lines(data) {
		rest, isSeparator := bytes.CutPrefix(text, []byte("---"))
		if isSeparator && at > start && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0) {
			parts = append(parts, part{data[start:at], startLine})
			start, startLine = at, line
		}
		at, line = at+len(text), line+1
	}
	return append(parts, part{data[start:], startLine})
}

// parse returns the root of a document, or nil.
func (s *source) parse(p part) *yaml.Node {
	if root := fromJSON(p.text); root != nil {
		return root
	}
	var document yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(p.text))
	err := decoder.Decode(&document)
	if err == io.EOF {
		return nil
	} else if err != nil {
		line, problem, suggestion := s.syntaxError(p.text, err)
		s.fault(p.before+max(line, 1), "", problem, suggestion)
		return nil
	}
	// Decode stops at the end of the document, whatever comes then.
	if err := decoder.Decode(new(yaml.Node)); err != io.EOF {
		s.fault(p.before+lineOfMore(p.text, err), "", "there is more text after the end of the document", "write --- on a line between documents")
		return nil
	}
	return document.Content[0]
}

// lineOfMore returns the line of what follows a document. err is the YAML library's, which counts these
// lines from 0.
func lineOfMore(text []byte, err error) int {
	line := 0
	if err != nil {
		line, _ = yamlError(err)
	}
	return min(line, bytes.Count(text, []byte("\n"))) + 1
}

// leadingZero matches numbers that YAML 1.1 reads as octal, if their digits allow it, and YAML 1.2 as decimal.
var leadingZero = regexp.MustCompile(`^[-+]?0[0-9_]`)

// checkOnce reports the first field that a document has twice, and whether there is none. Two documents without a line between
// them look like that.
func (s *source) checkOnce(root *yaml.Node) bool {
	seen := make(map[string]bool)
	for key := range pairs(root) {
		if key.Kind == yaml.ScalarNode && seen[key.Value] {
			s.fault(key.Line, key.Value, "expected the key once, found it again", "if another document begins here, write --- on a line before it; otherwise keep one of the two")
			return false
		}
		seen[key.Value] = true
	}
	return true
}

// check adds the lines before the document to those of its nodes, and reports errors for the features of YAML that the
// package does not accept, and whether there are none.
func (s *source) check(n *yaml.Node, before, depth int) bool {
	n.Line += before
	switch {
	case depth == 0:
		s.fault(n.Line, "", fmt.Sprintf("the document is nested more than %d levels deep", maxDepth), "")
		return false
	case n.Kind == yaml.AliasNode, n.Anchor != "":
		s.fault(n.Line, "", "anchors (&) and aliases (*) are not used here", "write the value out, or put the text in quotes")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		s.fault(n.Line, "", "tags (!) are not used here", "leave it out, or put the text in quotes")
		return false
	case n.Kind == yaml.ScalarNode && (n.Tag == "!!int" || n.Tag == "!!float") && leadingZero.MatchString(n.Value):
		s.fault(n.Line, "", fmt.Sprintf("the number %s is octal for some programs and decimal for others", n.Value), "write it without the leading 0, or put it in quotes if it is text")
		return false
	}
	ok := true
	for _, child := range n.Content {
		ok = s.check(child, before, depth-1) && ok
	}
	return ok
}
