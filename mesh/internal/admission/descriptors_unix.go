//go:build unix

package admission

import (
	"math"
	"syscall"
)

// Descriptors returns how many files and sockets the process may have open at a time.
func Descriptors() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxInt
	}
	return int(min(uint64(limit.Cur), math.MaxInt)) //nolint:unconvert // Cur is signed on some systems
}
