//go:build !windows

package explore

import (
	"syscall"
	"time"
)

// processTime returns the CPU time of the process. In runtime/metrics this time includes the waiting of threads, and is only as new as the last garbage
// collection.
func processTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
