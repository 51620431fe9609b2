package document

import "github.com/dynxds/dynxds/internal/faults"

type (
	// Fault is one mistake in a document.
	Fault = faults.Fault
	// Faults are the mistakes in documents.
	Faults = faults.Faults
)
