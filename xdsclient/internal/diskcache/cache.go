package diskcache

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

const (
	// MaxBytes and MaxRecords bound a file. The records that were current last are kept.
	MaxBytes   = 64 << 20
	MaxRecords = 1 << 17
	// MaxSlots bounds the processes of a program that keep their resources. Further ones only read.
	MaxSlots = 16
	// maxFiles bounds the files of a directory, and abandoned is the age, or the longest age of
	// resources if that is more, after which a file is removed.
	maxFiles  = 1024
	abandoned = 30 * 24 * time.Hour

	prefix, suffix = "dynxds-", ".resources"
)

// ErrRemoved says that the file was emptied: it had something that was refused since, and a new file
// could not be written.
var ErrRemoved = errors.New("it had resources that were refused since, and was emptied")

// Cache has the slots of one program in a directory, and writes one of them. Its methods are not safe for
// concurrent use; other processes may use the same directory.
type Cache struct {
	dir, program string
	maxAge       time.Duration
	// slot is the slot that the process holds; its file is nil before the first Write.
	slot slot
	// secured has the hashes of the keys that are known to ask for security.
	secured map[uint64]struct{}
	// syncDir makes renaming in a directory durable.
	syncDir func(dir string) error
}

var seed = maphash.MakeSeed()

// New returns the cache of the program with a fingerprint in a directory, which need not exist.
// Resources that were not known to be current for maxAge are ignored.
func New(dir, program string, maxAge time.Duration) *Cache {
	return &Cache{dir: dir, program: program, maxAge: maxAge, syncDir: syncDir}
}

// base is what the names of the program's files begin with.
func (c *Cache) base() string {
	return filepath.Join(c.dir, prefix+c.program[:min(len(c.program), 32)])
}

func (c *Cache) path(slot int) string { return fmt.Sprintf("%s.%d%s", c.base(), slot, suffix) }

// Path names the files of the program in messages; it is the file that Write last wrote, if it did.
func (c *Cache) Path() string {
	if c.slot.held == nil {
		return c.base() + ".*" + suffix
	}
	return c.slot.path
}

// Contents is what a file has.
type Contents struct {
	Path    string
	Records []Record
	// Old is how many resources were left out because of their age.
	Old int
}

// Load reads the slot whose resources were current last, of those that can be used. It returns no contents
// if there is none. Each of the faults names a file that cannot be used. Times that a clock ahead of this one
// has written count as now.
func (c *Cache) Load(now time.Time) (contents Contents, faults []error) {
	if err := c.checkDir(); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			faults = append(faults, fmt.Errorf("resource cache %s: %w", c.Path(), err))
		}
		return Contents{}, faults
	}
	fault := func(path string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("resource cache %s: %w", path, err))
		}
	}
	var found []candidate
	for i := range MaxSlots {
		x, err := open(c.path(i))
		if fault(c.path(i), err); x.file != nil {
			defer x.file.Close()
			found = append(found, x)
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return b.written.Compare(a.written) })
	for _, x := range found {
		contents, err := c.read(x, now)
		if err == nil {
			return contents, faults
		}
		if !errors.Is(err, errEmpty) {
			fault(x.file.Name(), err)
		}
	}
	return Contents{}, faults
}

// candidate is a slot that may be read.
type candidate struct {
	file    *os.File
	written time.Time
}

// errEmpty says that a slot has nothing. Another process may empty it at any time.
var errEmpty = errors.New("it is empty")

// open opens a slot, if nobody else can have written it. There is no file if the slot is not there.
func open(path string) (x candidate, err error) {
	file, err := os.OpenFile(path, os.O_RDONLY|withoutWaiting, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return x, nil
	}
	if err != nil {
		return x, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errors.New("it is not a regular file")
	case runtime.GOOS != "windows" && (info.Mode().Perm()&0o077 != 0 || !ownedBy(info, os.Geteuid())):
		err = fmt.Errorf("its owner or its mode, %v, lets others read or write it; expected a file of this user with mode 0600", info.Mode())
	case info.Size() > MaxBytes:
		err = fmt.Errorf("it has %d bytes, and the limit is %d", info.Size(), MaxBytes)
	default:
		return candidate{file, info.ModTime()}, nil
	}
	file.Close()
	return x, err
}

// read reads a slot as a whole.
func (c *Cache) read(x candidate, now time.Time) (Contents, error) {
	b, err := io.ReadAll(io.LimitReader(x.file, MaxBytes+1))
	if err != nil {
		return Contents{}, err
	}
	if len(b) == 0 {
		return Contents{}, errEmpty
	}
	h, all, err := decode(b)
	if err != nil {
		return Contents{}, err
	}
	if h.program != c.program {
		return Contents{}, errors.New("it is of another program, bootstrap or node")
	}
	if err := c.checkSecured(h); err != nil {
		return Contents{}, err
	}
	contents := Contents{Path: x.file.Name()}
	secured := make(map[uint64]struct{})
	for _, r := range all {
		if now.Sub(r.Time) > c.maxAge {
			contents.Old++
			continue
		}
		r.Time = earlier(r.Time, now)
		if r.Secured {
			secured[maphash.Comparable(seed, r.Key)] = struct{}{}
		}
		contents.Records = append(contents.Records, r)
	}
	if len(contents.Records) == 0 && len(all) > 0 { // the newest record is the first
		return Contents{}, fmt.Errorf("it is too old: current %v ago, and max_age is %v", now.Sub(all[0].Time).Round(time.Second), c.maxAge)
	}
	c.secured = secured
	return contents, nil
}

// checkDir checks that no other user can write in the directory: who can, puts an older file of this user in the
// place of the newest one, whatever its mode.
func (c *Cache) checkDir() error {
	info, err := os.Stat(c.dir)
	switch {
	case err != nil:
		return err
	case runtime.GOOS == "windows":
		return nil
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("other users can write in the directory, whose mode is %v, and could bring back an older file: make it writable for this user alone (chmod go-w %s), or name a directory below it, which is then made so",
			info.Mode(), c.dir)
	case !ownedBy(info, os.Geteuid()) && !ownedBy(info, 0):
		return fmt.Errorf("the directory belongs to another user, who could bring back an older file: give it to this user (chown %d %s), or name another one", os.Geteuid(), c.dir)
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}

// MakeDir makes the directory if it is not there.
func (c *Cache) MakeDir() error { return os.MkdirAll(c.dir, 0o700) }

// Write writes the slot of this process, which takes one if it has none. refused says that something was refused
// that the file has, or the slot of a process that has ended. omitted is how many records did not fit. If the
// error is ErrRemoved, the slot is empty: what is refused must not be found, whatever else is lost with it.
func (c *Cache) Write(entries []Entry, refused bool, now time.Time) (omitted int, err error) {
	if err := c.checkDir(); err != nil {
		return 0, err
	}
	first := c.slot.held == nil
	err = c.takeSlot(now)
	if err == nil {
		omitted, err = c.replace(entries, now)
	}
	if first && err == nil || refused {
		c.emptyFreeSlots()
	}
	if err == nil {
		return omitted, c.syncDir(c.dir)
	}
	if refused && c.slot.empty() == nil {
		err = fmt.Errorf("%w; %w", err, ErrRemoved)
	}
	return omitted, err
}

// Close leaves the slot to other processes.
func (c *Cache) Close() { c.slot.release() }
