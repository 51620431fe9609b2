package bootstrap

import (
	"errors"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/jsondoc"
)

// Fault is one thing that is wrong with a bootstrap. Its Path is the key path, for
// example `authorities["a"].xds_servers[0]`, and empty if the document as a whole is at
// fault. File, Line and Suggestion are empty.
type Fault = faults.Fault

// Faults is the error for a bootstrap that was read and is wrong. Its List has the first
// 100 faults in the order of the table in docs/reference/bootstrap.md, and Omitted counts those
// beyond. A CredentialsBuilder may return one as well, with paths relative to its
// configuration.
type Faults = faults.Faults

// failWith reports the error of another parser for a value. A *Faults is shown as it is;
// clean removes secrets from the text of any other error.
func failWith(v jsondoc.Value, err error, clean func(string) string) {
	var of *Faults
	if errors.As(err, &of) {
		v.AddFaults(of)
		return
	}
	v.Fault("", "%s", clean(err.Error()))
}
