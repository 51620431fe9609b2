package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one mistake in a file.
type Fault struct {
	// File is the name given to Parse. It may be empty.
	File string
	// Line counts from 1. 0: the fault has no line.
	Line int
	// Path is the place in the document, for example
	// "spec.to[0].rules[1].matches[0].path". It is empty for the document as a
	// whole.
	Path string
	// Problem says what was expected and what was found.
	Problem string
	// Suggestion says what to do about it. It may be empty.
	Suggestion string
}

// String returns all of the fault on one line, in the form file:line: path: problem.
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
	return b.String()
}

// Faults are the mistakes in one or several files. Several readers of one file add
// to one Faults, one at a time. The zero value has none.
type Faults struct {
	List []Fault
}

// Add adds a fault.
func (f *Faults) Add(fault Fault) { f.List = append(f.List, fault) }

// Err returns f as an error, its list by file and line, or nil if there are none.
func (f *Faults) Err() error {
	if f == nil || len(f.List) == 0 {
		return nil
	}
	slices.SortStableFunc(f.List, func(a, b Fault) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return f
}

// maxPrinted bounds what Error prints. List has all.
const maxPrinted = 100

// Error gives one line to each fault.
func (f *Faults) Error() string {
	var b strings.Builder
	for i, fault := range f.List {
		if i == maxPrinted {
			fmt.Fprintf(&b, "\nand %d more", len(f.List)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(fault.String())
	}
	return b.String()
}
