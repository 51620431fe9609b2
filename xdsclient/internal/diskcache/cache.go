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
	"strings"
	"time"

	cachepb "github.com/dynxds/dynxds/proto/dynxds/resource_cache/v1"
)

const (
	// MaxBytes and MaxRecords bound a file. The records that were current last are kept.
	MaxBytes   = 64 << 20
	MaxRecords = 1 << 17
	// maxFiles bounds the files of a directory, and abandoned is the age, or the longest age of
	// resources if that is more, after which a file is removed. A file of this program that was not finished goes after unfinished.
	maxFiles   = 1024
	abandoned  = 30 * 24 * time.Hour
	unfinished = time.Hour

	prefix = "dynxds-"
)

// ErrRemoved says that the file was emptied: it had something that was refused since, and a new file
// could not be written.
var ErrRemoved = errors.New("it had resources that were refused since, and was emptied")

// Cache is the file of one program in a directory. Its methods are not safe for
// concurrent use; other processes may use the same file.
type Cache struct {
	dir, program string
	maxAge       time.Duration
	// pruned says that other files of the directory were looked at.
	pruned bool
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

// base is what the names of the program's files begin with: the file, the mark (secured.go), and those that are being written.
func (c *Cache) base() string {
	return filepath.Join(c.dir, prefix+c.program[:min(len(c.program), 32)])
}

// Path returns the file.
func (c *Cache) Path() string { return c.base() + ".resources" }

// mark returns the second file, which secured.go explains.
func (c *Cache) mark() string { return c.base() + ".tls" }

// Load returns what the file has, and how many more resources it has that are too old. It returns nothing if there is no file. An
// error names the file, which cannot be used. Times that a clock ahead of this one has written count as now.
func (c *Cache) Load(now time.Time) (records []Record, old int, err error) {
	all, err := c.read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	secured := make(map[uint64]struct{})
	for _, r := range all {
		if now.Sub(r.Time) > c.maxAge {
			old++
			continue
		}
		if r.Time.After(now) {
			r.Time = now
		}
		if r.Secured {
			secured[maphash.Comparable(seed, r.Key)] = struct{}{}
		}
		records = append(records, r)
	}
	if len(records) == 0 && old > 0 { // the newest record is the first
		err = fmt.Errorf("it is too old: current %v ago, and max_age is %v", now.Sub(all[0].Time).Round(time.Second), c.maxAge)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("resource cache %s: %w", c.Path(), err)
	}
	c.secured = secured
	return records, old, nil
}

// read returns all that the file has, if the file is of the program, and neither older than the second one nor empty.
func (c *Cache) read() ([]Record, error) {
	if err := c.checkDir(); err != nil {
		return nil, err
	}
	b, err := c.readFile()
	if err != nil || len(b) == 0 { // it was emptied
		return nil, err
	}
	h, all, err := decode(b)
	if err == nil && h.GetProgram() != c.program {
		err = errors.New("it is of another program, bootstrap or node")
	}
	if err == nil {
		err = c.checkSecured(h)
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

// readFile reads the file as a whole, if nobody else can have written it.
func (c *Cache) readFile() ([]byte, error) {
	file, err := os.OpenFile(c.Path(), os.O_RDONLY|withoutWaiting, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case runtime.GOOS != "windows" && (info.Mode().Perm()&0o077 != 0 || !ownedBy(info, os.Geteuid())):
		return nil, fmt.Errorf("its owner or its mode, %v, lets others read or write it; expected a file of this user with mode 0600", info.Mode())
	case info.Size() > MaxBytes:
		return nil, fmt.Errorf("it has %d bytes, and the limit is %d", info.Size(), MaxBytes)
	default:
		return io.ReadAll(io.LimitReader(file, MaxBytes+1))
	}
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

// MakeDir makes the directory if it is not there.
func (c *Cache) MakeDir() error { return os.MkdirAll(c.dir, 0o700) }

// Write replaces the file. refused says that something was refused that the file may have. omitted is how many records
// did not fit. If the error is ErrRemoved, the file is empty: what is refused must not be found, whatever else is lost with it.
func (c *Cache) Write(records []Record, refused bool, now time.Time) (omitted int, err error) {
	if err := c.checkDir(); err != nil {
		return 0, err
	}
	if !c.pruned {
		c.pruned = true
		c.prune(now)
	}
	if omitted, err = c.replace(records, now); err == nil {
		return omitted, c.syncDir(c.dir)
	}
	if refused && c.empty() == nil {
		err = fmt.Errorf("%w; %w", err, ErrRemoved)
	}
	return omitted, err
}

// empty removes what the file has. That needs no room on the disk, and no right to write in the directory.
func (c *Cache) empty() error {
	file, err := os.OpenFile(c.Path(), os.O_WRONLY|withoutWaiting, 0)
	if err != nil {
		return err
	}
	return errors.Join(file.Truncate(0), file.Sync(), file.Close())
}

// replace puts a new file in the place of the old one, or leaves that as it is. It returns how many records do
// not fit.
func (c *Cache) replace(records []Record, now time.Time) (omitted int, err error) {
	since, secured := c.securedBy(records, now)
	h := &cachepb.Header{Program: c.program}
	if !since.IsZero() {
		h.SecuredSince = since.UnixNano()
	}
	err = c.put(c.Path(), func(file *os.File) (err error) {
		omitted, err = encode(file, h, records)
		return err
	}, func() error { return c.markSecured(since) })
	if err != nil {
		return 0, err
	}
	c.secured = secured
	return omitted, nil
}

// put puts a new file in the place of an old one, or leaves that as it is. before is called when the new one is on the disk.
func (c *Cache) put(path string, write func(*os.File) error, before func() error) error {
	file, err := os.CreateTemp(c.dir, filepath.Base(c.base())+".*.tmp") // other processes may do the same
	if err != nil {
		return err
	}
	if err = write(file); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = before()
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
	}
	return err
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
		path, age := filepath.Join(c.dir, info.Name()), now.Sub(info.ModTime())
		switch old := i >= maxFiles || age > max(c.maxAge, abandoned); {
		case path == c.Path(), path == c.mark():
		case old, strings.HasPrefix(path, c.base()) && age > unfinished:
			os.Remove(path)
		}
	}
}
