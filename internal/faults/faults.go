// Package faults collects everything that is wrong with one document or message and
// says it in one error, whose size is bounded.
//
// Readers of configuration use it: of YAML and JSON that people write
// (internal/document, internal/jsondoc) and of resources that servers send
// (internal/xdsresource). Each adds a [Fault] for whatever it cannot use, goes on
// reading, and returns [Faults.Err] in the end, so that one attempt finds all errors.
// A [Path] names the place. The package knows nothing of what is read.
package faults

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const (
	// MaxListed bounds the errors in a list: a document of many megabytes may be wrong
	// in a million places, and no reader gets past the first hundred.
	MaxListed = 100
	// MaxProblem bounds the Problem of an error that Addf adds, in bytes.
	MaxProblem = 1000
)

// Fault is one thing that is wrong.
type Fault struct {
	// File is the name of the file. It may be empty.
	File string
	// Other is another file, if two contradict each other. Its place is also in Problem.
	Other string
	// Line counts from 1. 0: the line is not known.
	Line int
	// Path is the place in the document or message, for example
	// `spec.rules[1].matches[0].path` or `authorities["a"].xds_servers[0]`. It is
	// empty for the whole.
	Path string
	// Problem says what was expected and what was found.
	Problem string
	// Suggestion says what to do about it. It may be empty.
	Suggestion string
}

// String returns what is known of the error on one line, in the form
// "file:line: path: problem; suggestion". Names of files are arbitrary, and have no control of it.
func (f Fault) String() string {
	var b strings.Builder
	if f.File != "" {
		b.WriteString(f.File + ":")
	}
	if f.Line > 0 {
		fmt.Fprintf(&b, "%d:", f.Line)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	}
	b.WriteString(f.Problem)
	if f.Suggestion != "" {
		b.WriteString("; " + f.Suggestion)
	}
	return Printable(b.String(), "")
}

// Faults is a list of errors, and the error that consists of them. Several readers may
// add to one list, one at a time. The zero value has none.
type Faults struct {
	// Source is what was read, such as "xDS bootstrap of GRPC_XDS_BOOTSTRAP". Error
	// starts with it, unless it is empty.
	Source string
	// List has the first MaxListed errors.
	List []Fault
	// Omitted counts the errors beyond those.
	Omitted int
	// RegexCost is for readers of a resource, whose regular expressions are bounded together: see matching.CompileRegex.
	RegexCost *int
}

// Add adds an error, or only counts it if the list is full.
func (f *Faults) Add(fault Fault) {
	if f.Full() {
		f.Omitted++
		return
	}
	f.List = append(f.List, fault)
}

// Addf adds an error at a path. If the list is full, nothing is formatted.
func (f *Faults) Addf(at *Path, format string, args ...any) {
	if f.Full() {
		f.Omitted++
		return
	}
	f.Add(Fault{Path: at.String(), Problem: Shorten(fmt.Sprintf(format, args...), MaxProblem)})
}

// AddAll adds the errors of another list.
func (f *Faults) AddAll(other *Faults) {
	for _, fault := range other.List {
		f.Add(fault)
	}
	f.Omitted += other.Omitted
}

// Full reports whether further errors are only counted.
func (f *Faults) Full() bool { return len(f.List) >= MaxListed }

// Total returns the number of errors, listed or not. A reader that has to know whether a
// part has errors compares Total before and after, since a full list does not grow.
func (f *Faults) Total() int { return len(f.List) + f.Omitted }

// Suggested reports whether every error says what to do about it.
func (f *Faults) Suggested() bool {
	return f.Omitted == 0 && !slices.ContainsFunc(f.List, func(fault Fault) bool { return fault.Suggestion == "" })
}

// Err returns f as an error, its list ordered by file and line, or nil if there are no
// errors. f may be nil.
func (f *Faults) Err() error {
	if f == nil || f.Total() == 0 {
		return nil
	}
	slices.SortStableFunc(f.List, func(a, b Fault) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return f
}

// Error returns the errors, a line each; with a Source, below a line that names it and
// counts them, or behind it if there is only one.
func (f *Faults) Error() string {
	switch {
	case f.Source == "":
		return f.Join("\n")
	case f.Total() == 1:
		return f.Source + ": " + f.Join("")
	default:
		const indented = "\n  "
		return fmt.Sprintf("%s: %d errors:", f.Source, f.Total()) + indented + f.Join(indented)
	}
}

// Join returns the errors as text with a separator between them, without the Source.
func (f *Faults) Join(separator string) string {
	parts := make([]string, 0, len(f.List)+1)
	for _, fault := range f.List {
		parts = append(parts, fault.String())
	}
	if f.Omitted > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", f.Omitted))
	}
	return strings.Join(parts, separator)
}
