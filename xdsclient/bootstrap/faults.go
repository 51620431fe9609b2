package bootstrap

import (
	"errors"

	"github.com/dynxds/dynxds/internal/jsonpath"
)

// Fault is one thing that is wrong with a bootstrap.
type Fault struct {
	// Path is the key path, for example `authorities["a"].xds_servers[0]`. It
	// is empty if the document as a whole is at fault.
	Path string
	// Problem says what was expected and what was found.
	Problem string
}

// String returns the path and the problem on one line.
func (f Fault) String() string { return jsonpath.Fault(f).String() }

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
func (f *Faults) Error() string { return jsonpath.Text("xDS bootstrap "+f.Source, f.List, f.Omitted) }

// errorOf returns the faults of a document, or nil if there are none.
func errorOf(source string, to *jsonpath.Collector) error {
	if to.Total() == 0 {
		return nil
	}
	list, omitted := to.Faults()
	f := &Faults{Source: source, Omitted: omitted}
	for _, fault := range list {
		f.List = append(f.List, Fault(fault))
	}
	return f
}

// failWith reports what a parser of someone else's says of a value. A *Faults was
// written to be shown; from the text of any other error, clean removes what must not
// be.
func failWith(v jsonpath.Value, err error, clean func(string) string) {
	var faults *Faults
	if !errors.As(err, &faults) {
		v.Fail("%s", clean(err.Error()))
		return
	}
	for _, fault := range faults.List {
		v.To.Add(jsonpath.Join(v.Path, fault.Path), fault.Problem)
	}
	v.To.Omit(faults.Omitted)
}
