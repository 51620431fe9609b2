package diskcache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// slot is a file that the process has locked.
type slot struct {
	path string
	held *os.File
}

// errTaken says that another process holds a slot.
var errTaken = errors.New("another process holds it")

// hold opens and locks a slot. flags may ask for making the file.
func hold(path string, flags int) (slot, error) {
	file, err := os.OpenFile(path, os.O_RDWR|withoutWaiting|flags, 0o600)
	if err != nil {
		return slot{}, err
	}
	s := slot{path, file}
	// Another process may have replaced the file between the two steps.
	if !lock(file) || !s.inPlace() {
		s.release()
		return slot{}, errTaken
	}
	return s, nil
}

// inPlace reports whether the locked file is the one that the directory has.
func (s *slot) inPlace() bool {
	if s.held == nil {
		return false
	}
	held, err := s.held.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(s.path)
	return err == nil && os.SameFile(held, there)
}

func (s *slot) release() {
	if s.held != nil {
		unlock(s.held)
		s.held.Close()
		s.held = nil
	}
}

// empty removes what the file has. That needs no room on the disk, and no right to write in the directory.
func (s *slot) empty() error {
	if s.held == nil {
		return fs.ErrClosed
	}
	return errors.Join(s.held.Truncate(0), s.held.Sync())
}

// takeSlot takes the first free slot, unless the process has one.
func (c *Cache) takeSlot(now time.Time) error {
	if c.slot.inPlace() {
		return nil
	}
	c.slot.release()
	c.prune(now)
	var firstFault error
	for i := range MaxSlots {
		s, err := hold(c.path(i), os.O_CREATE)
		if err == nil {
			c.slot = s
			return nil
		}
		if firstFault == nil && !errors.Is(err, errTaken) {
			firstFault = err
		}
	}
	if firstFault == nil {
		firstFault = fmt.Errorf("%d processes of the program keep their resources already", MaxSlots)
	}
	return firstFault
}

// emptyFreeSlots empties the slots whose processes have ended: what this process has is newer.
func (c *Cache) emptyFreeSlots() {
	for i := range MaxSlots {
		if path := c.path(i); path != c.slot.path {
			if s, err := hold(path, 0); err == nil {
				s.empty()
				s.release()
			}
		}
	}
}

// replace puts a new file in the place of the slot's, or leaves that as it is. It returns how many records do
// not fit.
func (c *Cache) replace(entries []Entry, now time.Time) (omitted int, err error) {
	path := strings.TrimSuffix(c.slot.path, suffix) + ".tmp" // left by a process that ended, perhaps
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	next := slot{c.slot.path, file}
	defer func() {
		if err != nil {
			next.release()
			os.Remove(path)
		}
	}()
	since, secured := c.securedBy(entries, now)
	if omitted, err = encode(file, header{c.program, since}, entries); err != nil {
		return 0, err
	}
	if err = file.Sync(); err != nil {
		return 0, err
	}
	if err = c.markSecured(since); err != nil {
		return 0, err
	}
	if err = os.Chtimes(path, now, now); err != nil { // finer than the clock of a file system
		return 0, err
	}
	lock(file) // before the name, so that no other process finds the slot free
	if err = os.Rename(path, c.slot.path); err != nil {
		return 0, err
	}
	c.slot.release()
	c.slot, c.secured = next, secured
	return omitted, nil
}

// prune removes the files of the directory that were not written for long, and the oldest of too many. Programs
// whose node has another id at each start leave one file each.
func (c *Cache) prune(now time.Time) {
	entries, _ := os.ReadDir(c.dir)
	var files []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && strings.HasPrefix(e.Name(), prefix) {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for i, info := range files {
		path := filepath.Join(c.dir, info.Name())
		old := i >= maxFiles || now.Sub(info.ModTime()) > max(c.maxAge, abandoned)
		if old && !strings.HasPrefix(path, c.base()) {
			os.Remove(path)
		}
	}
}
