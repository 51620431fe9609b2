// Package errorcode has the codes of errors in documents of a folder (D…) and in bootstraps (B…): a code stands for a kind of error, and
// has a text with its cause and an example. The readers know no codes; their errors get them here, by their words, and the tests
// have the readers read each example. It is not for errors of RPCs.
package errorcode

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/internal/faults"
)

// Code is a kind of error.
type Code struct {
	// ID is stable: D and a number for documents, B and a number for bootstraps.
	ID    string
	Title string
	// Text is the long form: what the reader takes the error for, and what to do; and a document with the error, and one without.
	Text string

	// words match "path: problem; suggestion" of these errors, and of none of a code above.
	words *regexp.Regexp
}

// texts has the codes in the order in which errors are compared with them. IDs do not change, and are not used again.
//
//go:embed codes.txt
var texts string

var table = parse(texts)

// parse reads the codes: of each a line with the ID and the title, one with the words, and the rest of the long form.
func parse(texts string) (table []Code) {
	for text := range strings.SplitSeq(strings.TrimPrefix(texts, "=== "), "\n=== ") {
		head, text, _ := strings.Cut(text, "\nwords: ")
		words, text, _ := strings.Cut(text, "\n")
		id, title, _ := strings.Cut(head, ": ")
		table = append(table, Code{id, title, head + "\n" + strings.TrimSuffix(text, "\n") + "\n", regexp.MustCompile(words)})
	}
	return table
}

// Of returns the code of an error: of one in a bootstrap if inBootstrap, otherwise of one in a document.
func Of(f faults.Fault, inBootstrap bool) *Code {
	text := faults.Fault{Path: f.Path, Problem: f.Problem, Suggestion: f.Suggestion}.String()
	kind := "D"
	if inBootstrap {
		kind = "B"
	}
	// The last one of each kind matches everything.
	return &table[slices.IndexFunc(table, func(c Code) bool { return strings.HasPrefix(c.ID, kind) && c.words.MatchString(text) })]
}

// Marked returns the error with its code behind its text.
func Marked(f faults.Fault, inBootstrap bool) faults.Fault {
	mark := " [" + Of(f, inBootstrap).ID + "]"
	if f.Suggestion != "" {
		f.Suggestion += mark
	} else {
		f.Problem += mark
	}
	return f
}

// Find returns the code with an ID, however its letter is written, or nil.
func Find(id string) *Code {
	for i := range table {
		if strings.EqualFold(table[i].ID, id) {
			return &table[i]
		}
	}
	return nil
}

// All returns the codes in order.
func All() []Code { return table }
