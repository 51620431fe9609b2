package document

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
)

const (
	// maxExcerpt bounds the lines that are shown, in characters, and maxExcerptFile the files that they are looked for in, in bytes.
	maxExcerpt     = 100
	maxExcerptFile = 4 << 20
)

// Excerpt returns the line that an error is in, with a mark under the place, as two lines; nothing if the file cannot be read any more.
// Without a line in the error, its path has to be one in the only document of the file.
//
//	12 | nme: shop
//	   | ^
func Excerpt(f Fault) []string {
	text, err := bounds.ReadFile(f.File, maxExcerptFile)
	if err != nil {
		return nil
	}
	line, column := f.Line, 0
	if line == 0 {
		if line, column = locate(text, f.Path); line == 0 {
			return nil
		}
	}
	lines := bytes.Split(text, []byte("\n"))
	if line > len(lines) {
		return nil
	}
	shown := strings.TrimRight(string(lines[line-1]), " \r")
	if column == 0 {
		column = columnIn(shown, f)
	}
	if shown = strings.ReplaceAll(shown, "\t", " "); column > maxExcerpt {
		shown, column = "…"+shown[column-1:], 2
	}
	number := fmt.Sprintf("%6d", line)
	return []string{
		number + " | " + faults.Printable(faults.Shorten(shown, maxExcerpt), ""),
		strings.Repeat(" ", len(number)) + " | " + strings.Repeat(" ", column-1) + "^",
	}
}

// columnIn returns the column of what an error is about in its line: a name that the problem quotes, the field that its path ends in,
// or else the first character.
func columnIn(line string, f Fault) int {
	if _, quoted, found := strings.Cut(f.Problem, `"`); found {
		word, _, _ := strings.Cut(quoted, `"`)
		if at := strings.Index(line, word); word != "" && at >= 0 {
			return at + 1
		}
	}
	name := f.Path[strings.LastIndexByte(f.Path, '.')+1:]
	name, _, _ = strings.Cut(name, "[")
	if at := strings.Index(line, name+":"); name != "" && at >= 0 {
		return at + 1
	}
	return len(line) - len(strings.TrimLeft(line, " -\t")) + 1
}

// locate returns the line and the column of the value at a path in a document, or of the last value on the way that there is.
func locate(text []byte, path string) (line, column int) {
	var root yaml.Node
	if yaml.Unmarshal(text, &root) != nil || len(root.Content) == 0 {
		return 0, 0
	}
	n := find(root.Content[0], path)
	return n.Line, n.Column
}

// FaultAt reports an error at a path below the value, on the line of the last value on the way that there is.
func (v Value) FaultAt(path, problem string) {
	v.file.fault(find(v.node, path).Line, faults.Join(v.path, path), problem, "")
}

func find(n *yaml.Node, path string) *yaml.Node {
	for step := range strings.FieldsFuncSeq(path, func(c rune) bool { return c == '.' || c == '[' || c == ']' }) {
		next := (*yaml.Node)(nil)
		if index, err := strconv.Atoi(step); err == nil && n.Kind == yaml.SequenceNode && index < len(n.Content) {
			next = n.Content[index]
		}
		for key, value := range pairs(n) {
			if key.Value == strings.Trim(step, `"`) {
				next = value
			}
		}
		if next == nil {
			break
		}
		n = next
	}
	return n
}
