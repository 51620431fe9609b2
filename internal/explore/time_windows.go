package explore

import (
	"syscall"
	"time"
)

func processTime() time.Duration {
	var created, ended, kernel, user syscall.Filetime
	self, _ := syscall.GetCurrentProcess()
	_ = syscall.GetProcessTimes(self, &created, &ended, &kernel, &user)
	high := int64(kernel.HighDateTime) + int64(user.HighDateTime)
	low := int64(kernel.LowDateTime) + int64(user.LowDateTime)
	return time.Duration(high<<32+low) * 100 // of 100 ns
}
