package bootstrap

import (
	"errors"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/jsondoc"
)

// Fault is one thing that is wrong with a bootstrap. Its Path is the key path, for
// example `authorities["a"].xds_servers[0]`, and empty if the document as a whole is at
// error. File, Line and Suggestion are empty.
type Fault = faults.Fault

// Faults is the error for a bootstrap that was read and is wrong. Its List has the first
// 100 errors in the order of the table in docs/reference/bootstrap.md, and Omitted counts those
// beyond. A CredentialsBuilder may return one as well, with paths relative to its
// configuration.
type Faults = faults.Faults

// fail reports the error of another parser for a value, if there is one. A *Faults is shown as it is, with the paths
// that the value has.
func fail(v jsondoc.Value, err error) {
	if of, ok := errors.AsType[*Faults](err); ok {
		v.AddFaults(of)
	} else if err != nil {
		v.Fault("", "%v", err)
	}
}
