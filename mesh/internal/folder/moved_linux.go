package folder

import (
	"os"
	"syscall"
	"time"
)

// movedHere reports whether the last change of a file was not one of its text. Writing sets the time of the text
// (mtime) and that of the file (ctime) to the same; renaming sets only the latter, and so does a tool that
// restores the time of the text after it has written all of it, such as "cp -p" or tar.
func movedHere(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && time.Unix(stat.Ctim.Unix()).After(info.ModTime())
}
