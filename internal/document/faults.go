package document

import "github.com/dynxds/dynxds/internal/faults"

type (
	// Fault is one mistake in a file.
	Fault = faults.Fault
	// Faults are the mistakes in one or several files.
	Faults = faults.Faults
)
