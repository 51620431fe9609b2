package bootstrap

import (
	"errors"
	"fmt"
	"strings"
)

// maxFaults bounds a report: a file of many megabytes may be wrong in a million
// places, and no reader gets past the first hundred.
const maxFaults = 100

// Fault is one thing that is wrong with a bootstrap.
type Fault struct {
	// Path is the key path, for example `authorities["a"].xds_servers[0]`. It
	// is empty if the document as a whole is at fault.
	Path string
	// Problem says what was expected and what was found.
	Problem string
}

// String returns the path and the problem on one line.
func (f Fault) String() string {
	if f.Path == "" {
		return f.Problem
	}
	return f.Path + ": " + f.Problem
}

// Faults is the error for a bootstrap that was read and is wrong. It lists
// every fault in the order of the table in docs/bootstrap.md. A
// CredentialsBuilder may return one as well, with paths relative to its
// configuration.
type Faults struct {
	// Source is Config.Source of the document.
	Source string
	// List has at least one fault and at most 100.
	List []Fault
	// Omitted counts the faults beyond the ones in List.
	Omitted int
}

// Error names the source and gives one line to each fault.
func (f *Faults) Error() string {
	if len(f.List) == 1 && f.Omitted == 0 {
		return fmt.Sprintf("xDS bootstrap %s: %s", f.Source, f.List[0])
	}
	var b strings.Builder
	fmt.Fprintf(&b, "xDS bootstrap %s has %d faults:", f.Source, len(f.List)+f.Omitted)
	for _, fault := range f.List {
		b.WriteString("\n  ")
		b.WriteString(fault.String())
	}
	if f.Omitted > 0 {
		fmt.Fprintf(&b, "\n  and %d more", f.Omitted)
	}
	return b.String()
}

// collector gathers the faults of one document.
type collector struct {
	list    []Fault
	omitted int
}

func (c *collector) add(path, problem string) {
	if len(c.list) == maxFaults {
		c.omitted++
		return
	}
	c.list = append(c.list, Fault{Path: path, Problem: problem})
}

func (c *collector) total() int { return len(c.list) + c.omitted }

// merge adds what a parser of someone else's says of the value at path. A
// *Faults was written to be shown; from the text of any other error, clean
// removes what must not be.
func (c *collector) merge(path string, err error, clean func(string) string) {
	var faults *Faults
	if !errors.As(err, &faults) {
		c.add(path, clean(err.Error()))
		return
	}
	for _, fault := range faults.List {
		c.add(joinPath(path, fault.Path), fault.Problem)
	}
	c.omitted += faults.Omitted
}

func (c *collector) err(source string) error {
	if len(c.list) == 0 {
		return nil
	}
	return &Faults{Source: source, List: c.list, Omitted: c.omitted}
}

func joinPath(parent, child string) string {
	switch {
	case parent == "":
		return child
	case child == "", strings.HasPrefix(child, "["):
		return parent + child
	default:
		return parent + "." + child
	}
}
