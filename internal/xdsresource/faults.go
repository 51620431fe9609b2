package xdsresource

import (
	"fmt"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/xdsclient"
)

// Faults is the error for a resource that does not validate: everything that is wrong
// with it, in the order in which its fields are read. The paths are proto field paths
// from the resource, as in "virtual_hosts[2].routes[0].match".
type Faults struct{ faults.Faults }

// Error returns all errors on one line, since it becomes part of a NACK.
func (f *Faults) Error() string { return f.Join("; ") }

// report collects the errors of one resource, and what is ignored of it.
type report struct {
	faults Faults
	// ignored is what is left out of the value.
	ignored ignoredList
}

// fault notes that the field at p is invalid.
func (r *report) fault(p *faults.Path, format string, args ...any) {
	r.faults.Addf(p, format, args...)
}

// lack notes that this client lacks what the field at p asks for, and what to do about that: the control plane need not change.
func (r *report) lack(p *faults.Path, suggestion, format string, args ...any) {
	r.faults.Add(faults.Fault{Path: p.String(), Problem: faults.Shorten(fmt.Sprintf(format, args...), faults.MaxProblem), Suggestion: suggestion})
}

// ignore notes that the field at p is left out of the value.
func (r *report) ignore(p *faults.Path, format string, args ...any) {
	r.leaveOut(p, xdsclient.SeverityInfo, format, args...)
}

// warn notes that the field at p is left out of the value, and that RPCs may go
// elsewhere because of that.
func (r *report) warn(p *faults.Path, format string, args ...any) {
	r.leaveOut(p, xdsclient.SeverityWarning, format, args...)
}

func (r *report) leaveOut(p *faults.Path, severity xdsclient.Severity, format string, args ...any) {
	reason := faults.Shorten(fmt.Sprintf(format, args...), faults.MaxProblem)
	r.ignored.add(p, severity, reason, reason)
}

// atMost notes an error if a list has more entries than a limit, and reports whether it has not. Each RPC
// goes through such a list.
func (r *report) atMost(p *faults.Path, n, limit int) bool {
	if n > limit {
		r.fault(p, "has %d entries, more than the %d that this client takes, as each RPC goes through them", n, limit)
	}
	return n <= limit
}

// failed reports whether the resource has an error.
func (r *report) failed() bool { return r.faults.Total() > 0 }

// err returns the errors as an error, or nil if there are none.
func (r *report) err() error {
	if !r.failed() {
		return nil
	}
	return &r.faults
}
