package folder

import (
	"os"
	"syscall"
	"time"
)

// changedAt returns when a file last changed in any way (ctime). No tool can set it: it tells apart two texts of the same size and time, as
// archives with fixed times have them.
func changedAt(info os.FileInfo) time.Time {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(stat.Ctim.Unix())
	}
	return time.Time{}
}
