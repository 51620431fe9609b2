package dynparam

import (
	"fmt"
	"strconv"

	"github.com/dynxds/dynxds/internal/jsonpath"
)

const (
	// MaxSize bounds one set of constraints and one set of parameters, in bytes on
	// the wire. Constraints that list 5,000 ranges of shards fit.
	MaxSize = 64 << 10
	// MaxKeys bounds the keys of one set of constraints or parameters.
	MaxKeys = 128
	// MaxTypes bounds the resource types of a ByType.
	MaxTypes = 128
	// MaxJSONSize bounds the text that ParseJSON takes, in bytes. Any Constraints
	// written as JSON are smaller.
	MaxJSONSize = 1 << 20
)

// Fault is one thing that is wrong with a message.
type Fault struct {
	// Path is the place in the message, for example
	// `key_constraints["env"].constraints[0]`. It is empty if the message as a
	// whole is at fault.
	Path string
	// Problem says what was expected and what was found.
	Problem string
}

// String returns the path and the problem on one line.
func (f Fault) String() string { return jsonpath.Fault(f).String() }

// Faults is the error for input that cannot be used. It lists everything that is
// wrong with it.
type Faults struct {
	// What is what was read, for example "dynamic parameter constraints".
	What string
	// List has at least one fault and at most 100.
	List []Fault
	// Omitted counts the faults beyond the ones in List.
	Omitted int
}

// Error gives one line to each fault.
func (f *Faults) Error() string { return jsonpath.Text(f.What, f.List, f.Omitted) }

// collector gathers the faults of one message.
type collector struct{ jsonpath.Collector }

func (c *collector) add(at *path, format string, args ...any) {
	if c.Full() {
		c.Omit(1)
		return
	}
	c.Add(at.String(), fmt.Sprintf(format, args...))
}

func (c *collector) err(what string) error {
	if c.Total() == 0 {
		return nil
	}
	list, omitted := c.Faults()
	f := &Faults{What: what, Omitted: omitted}
	for _, fault := range list {
		f.List = append(f.List, Fault(fault))
	}
	return f
}

// path is a place in a message. It is written out only if there is a fault.
type path struct {
	parent *path
	step   string
	index  int
	kind   stepKind
}

type stepKind int

const (
	fieldStep stepKind = iota
	entryStep
	elementStep
)

func (p *path) field(name string) *path { return &path{parent: p, step: name} }

func (p *path) entry(key string) *path { return &path{parent: p, step: key, kind: entryStep} }

func (p *path) element(i int) *path { return &path{parent: p, index: i, kind: elementStep} }

// String writes the path as a reader of proto JSON expects it. The path to the
// message as a whole is nil.
func (p *path) String() string {
	if p == nil {
		return ""
	}
	before := p.parent.String()
	switch p.kind {
	case entryStep:
		return before + "[" + jsonpath.Quote(p.step) + "]"
	case elementStep:
		return before + "[" + strconv.Itoa(p.index) + "]"
	case fieldStep:
		if before != "" {
			before += "."
		}
	}
	return before + p.step
}
