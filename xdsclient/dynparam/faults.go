package dynparam

import "github.com/dynxds/dynxds/internal/faults"

// What comes from a peer, a file or a program has these limits.
const (
	// maxSize bounds one set of constraints and one set of parameters, in bytes on
	// the wire. Constraints that list 5,000 ranges of shards fit.
	maxSize = 64 << 10
	// maxKeys bounds the keys of one set of constraints or parameters.
	maxKeys = 128
	// maxTypes bounds the resource types of a ByType.
	maxTypes = 128
	// maxJSONSize bounds constraints as JSON, in bytes. Any Constraints written as
	// JSON are smaller.
	maxJSONSize = 1 << 20
)

// Faults is the error for input that cannot be used: all that is wrong with it, each
// error with its path, such as `key_constraints["env"].constraints[0]`. Source says what
// was read, List has at most 100 errors, and Omitted counts those beyond.
type Faults = faults.Faults

type path = faults.Path
