//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package diskcache

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// withoutWaiting opens a named pipe at once, which is then found not to be a file.
const withoutWaiting = syscall.O_NONBLOCK

// ownedBy reports whether a file belongs to a user.
func ownedBy(info fs.FileInfo, user int) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(s.Uid) == user
}

// syncDir makes renaming and removing in a directory durable. A file system that cannot do that does it
// when it likes.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err = d.Sync(); errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}
