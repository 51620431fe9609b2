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

// lock locks a directory for writing in it, or returns ErrLocked. On a file system without locks it
// does nothing.
func lock(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if errors.Is(syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
		d.Close()
		return nil, ErrLocked
	}
	return func() {
		// A process that the program starts at this moment has the directory open until it executes its
		// file, and closing alone would leave the lock to it.
		syscall.Flock(int(d.Fd()), syscall.LOCK_UN)
		d.Close()
	}, nil
}

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
