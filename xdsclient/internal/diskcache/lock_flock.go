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

// lock locks a file, and reports whether it did, or the file system has no locks.
func lock(file *os.File) bool {
	return !errors.Is(syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// unlock comes before the file is closed: a process that the program starts at this moment has the file open
// until it executes its own, and closing alone would leave the lock to it.
func unlock(file *os.File) { syscall.Flock(int(file.Fd()), syscall.LOCK_UN) }

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
