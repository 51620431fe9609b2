package xdsresource

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dynxds/dynxds/xdsclient"
)

// Bounds on what is said about one resource, so that a large resource that is
// wrong all over does not become an error of many megabytes.
const (
	maxFaults        = 100
	maxMessageLength = 1000
	maxQuotedLength  = 200
)

// Fault is one thing that is wrong with a resource.
type Fault struct {
	// Path is the proto field path from the resource, as in
	// "virtual_hosts[2].routes[0].match". Empty: the resource as a whole.
	Path string
	// Message says what is wrong and what was expected.
	Message string
}

func (f Fault) String() string {
	if f.Path == "" {
		return f.Message
	}
	return f.Path + ": " + f.Message
}

// Faults is the error of a resource that does not validate: everything that
// is wrong with it, in the order of the resource's fields as they are read.
type Faults struct {
	// List holds the first 100 faults; it is not empty.
	List []Fault
	// Omitted is the number of faults beyond those.
	Omitted int
}

// Error returns all faults, separated by "; ".
func (f *Faults) Error() string {
	var b strings.Builder
	for i, fault := range f.List {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(fault.String())
	}
	if f.Omitted > 0 {
		fmt.Fprintf(&b, "; and %d more", f.Omitted)
	}
	return b.String()
}

// fault notes that the field at p is wrong.
func (v *validator) fault(p *path, format string, args ...any) {
	if v.faultsFull() {
		v.faults.Omitted++
		return
	}
	message := shorten(fmt.Sprintf(format, args...), maxMessageLength)
	v.faults.List = append(v.faults.List, Fault{Path: p.String(), Message: message})
}

// ignore notes that the field at p is left out of the value.
func (v *validator) ignore(p *path, format string, args ...any) {
	reason := shorten(fmt.Sprintf(format, args...), maxMessageLength)
	v.ignored.add(p, xdsclient.SeverityInfo, reason, reason)
}

// warn notes that the field at p is left out of the value, and that RPCs may go
// elsewhere for it.
func (v *validator) warn(p *path, format string, args ...any) {
	reason := shorten(fmt.Sprintf(format, args...), maxMessageLength)
	v.ignored.add(p, xdsclient.SeverityWarning, reason, reason)
}

func (v *validator) faultsFull() bool { return len(v.faults.List) == maxFaults }

func (v *validator) failed() bool { return len(v.faults.List) > 0 }

func (v *validator) err() error {
	if !v.failed() {
		return nil
	}
	return &v.faults
}

// path is a proto field path, kept as a chain so that nothing is formatted
// unless there is a fault. A nil path is the resource.
type path struct {
	parent *path
	name   string
	index  int
}

const noIndex = -1

func (p *path) field(name string) *path { return &path{parent: p, name: name, index: noIndex} }

func (p *path) item(name string, i int) *path { return &path{parent: p, name: name, index: i} }

func (p *path) String() string { return string(p.append(nil, true)) }

// withoutIndexes returns the path as text, the same for all items of a list.
func (p *path) withoutIndexes() string { return string(p.append(nil, false)) }

func (p *path) append(b []byte, indexes bool) []byte {
	if p == nil {
		return b
	}
	b = p.parent.append(b, indexes)
	if len(b) > 0 {
		b = append(b, '.')
	}
	b = append(b, p.name...)
	if indexes && p.index != noIndex {
		b = append(b, '[')
		b = strconv.AppendInt(b, int64(p.index), 10)
		b = append(b, ']')
	}
	return b
}

// quote quotes a value of the resource for a message.
func quote(s string) string { return strconv.Quote(shorten(s, maxQuotedLength)) }

// shorten cuts s to about max bytes, between two characters.
func shorten(s string, max int) string {
	if len(s) <= max {
		return s
	}
	for max > 0 && !utf8.RuneStart(s[max]) {
		max--
	}
	return s[:max] + "…"
}
