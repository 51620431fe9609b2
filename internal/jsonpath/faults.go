package jsonpath

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	// MaxFaults bounds a report: a document of many megabytes may be wrong in a
	// million places, and no reader gets past the first hundred.
	MaxFaults = 100
	// MaxQuoted bounds the text of the document that a fault shows, in bytes.
	MaxQuoted = 100
)

// Fault is one thing that is wrong with a document.
type Fault struct {
	// Path is the place, empty for the document as a whole.
	Path string
	// Problem says what was expected and what was found.
	Problem string
}

// Collector gathers the faults of one document. The zero Collector has none. It is
// for one goroutine.
type Collector struct {
	list    []Fault
	omitted int
}

// Add adds a fault, or counts it if there are MaxFaults.
func (c *Collector) Add(path, problem string) {
	if c.Full() {
		c.omitted++
		return
	}
	c.list = append(c.list, Fault{Path: path, Problem: problem})
}

// Full reports whether further faults are only counted.
func (c *Collector) Full() bool { return len(c.list) == MaxFaults }

// Omit counts n faults that are not to be listed.
func (c *Collector) Omit(n int) { c.omitted += n }

// Total returns the number of faults.
func (c *Collector) Total() int { return len(c.list) + c.omitted }

// Faults returns the faults in the order in which they were added, at most MaxFaults,
// and the number of those beyond.
func (c *Collector) Faults() (list []Fault, omitted int) { return c.list, c.omitted }

// Text is the report of faults: what was read and, a line each, what is wrong with it.
func Text[F fmt.Stringer](what string, faults []F, omitted int) string {
	if len(faults) == 1 && omitted == 0 {
		return what + ": " + faults[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d faults:", what, len(faults)+omitted)
	for _, fault := range faults {
		b.WriteString("\n  ")
		b.WriteString(fault.String())
	}
	if omitted > 0 {
		fmt.Fprintf(&b, "\n  and %d more", omitted)
	}
	return b.String()
}

// String returns the path and the problem on one line.
func (f Fault) String() string {
	if f.Path == "" {
		return f.Problem
	}
	return f.Path + ": " + f.Problem
}

// Join returns the path of a child, which is a key or begins with an index, or with
// more of them.
func Join(parent, child string) string {
	switch {
	case parent == "":
		return child
	case child == "", strings.HasPrefix(child, "["):
		return parent + child
	default:
		return parent + "." + child
	}
}

// Quote quotes text of a document for a fault, cut to a bearable length.
func Quote(s string) string { return strconv.Quote(Shorten(s, MaxQuoted)) }

// Shorten cuts text to about limit bytes, between two characters.
func Shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
