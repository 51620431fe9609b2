//go:build !windows

package explore

import (
	"syscall"
	"time"
)

// processTime returns the CPU time of the process. runtime/metrics has only that of threads that run or want to, as of the last collection of garbage.
func processTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
