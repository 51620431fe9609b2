//go:build !unix

package admission

import "math"

// Descriptors returns how many files and sockets the process may have open at a time.
func Descriptors() int { return math.MaxInt }
