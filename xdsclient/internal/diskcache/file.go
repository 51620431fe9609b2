package diskcache

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Magic is the first line of a file. The number is that of the format.
const Magic = "dynxds resource cache 1\n"

const (
	// MaxBytes and MaxRecords bound a file. The records that were current last are kept.
	MaxBytes   = 64 << 20
	MaxRecords = 1 << 17
	// maxFiles bounds the files of a directory, and abandoned is the age, or the longest age of
	// resources if that is more, after which a file is removed.
	maxFiles  = 1024
	abandoned = 30 * 24 * time.Hour

	prefix, suffix = "dynxds-", ".resources"
)

// ErrLocked says that another process is writing in the directory.
var ErrLocked = errors.New("another process is writing in the directory")

// ErrRemoved says that the file was removed: it had something that was refused since, and a new file
// could not be written.
var ErrRemoved = errors.New("it had resources that were refused since, and was removed")

// File is the file of one bootstrap. Its methods are not safe for concurrent use; other processes may
// use the same file.
type File struct {
	dir, path, bootstrap string
	maxAge               time.Duration
	pruned               bool
	// syncDir makes renaming and removing in a directory durable.
	syncDir func(dir string) error
}

// New returns the file of the bootstrap with a fingerprint in a directory, which need not exist.
// Resources that were not known to be current for maxAge are ignored.
func New(dir, bootstrap string, maxAge time.Duration) *File {
	name := prefix + bootstrap[:min(len(bootstrap), 32)] + suffix
	return &File{dir: dir, path: filepath.Join(dir, name), bootstrap: bootstrap, maxAge: maxAge, syncDir: syncDir}
}

// Path returns where the file is.
func (f *File) Path() string { return f.path }

// Contents is what a file has.
type Contents struct {
	Records []Record
	// Written is when the file was written.
	Written time.Time
	// Old is how many resources were left out because of their age.
	Old int
}

// Load reads the file. It returns no contents if there is no file. An error says that the file
// cannot be used, and names it. Times that a clock ahead of this one has written count as now.
func (f *File) Load(now time.Time) (Contents, error) {
	c, err := f.load(now)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Contents{}, nil
	case err != nil:
		return Contents{}, fmt.Errorf("resource cache %s: %w", f.path, err)
	}
	if len(c.Records) == 0 && c.Old > 0 {
		return Contents{}, fmt.Errorf("resource cache %s: it is too old: written %v ago, and max_age is %v", f.path, now.Sub(c.Written).Round(time.Second), f.maxAge)
	}
	return c, nil
}

func (f *File) load(now time.Time) (c Contents, err error) {
	file, err := f.open()
	if err != nil {
		return Contents{}, err
	}
	defer file.Close()
	h, err := f.scan(file, func(message []byte, _ int64) error {
		var r Record
		if err := r.parse(message, true); err != nil {
			return err
		}
		if now.Sub(r.Time) > f.maxAge {
			c.Old++
		} else {
			r.Time = earlier(r.Time, now)
			c.Records = append(c.Records, r)
		}
		return nil
	})
	if err == nil {
		err = f.checkSecured(h)
	}
	if err != nil {
		return Contents{}, err
	}
	c.Written = earlier(h.written, now)
	return c, nil
}

// open opens the file, if nobody else can have written it.
func (f *File) open() (_ *os.File, err error) {
	if err := f.checkDir(); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(f.path, os.O_RDONLY|withoutWaiting, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
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
	}
	return file, nil
}

// checkDir checks that no other user can write in the directory: who can, puts an older file of this user in the
// place of the newest one, whatever its mode.
func (f *File) checkDir() error {
	if runtime.GOOS == "windows" {
		return nil
	}
	info, err := os.Stat(f.dir)
	switch {
	case err != nil:
		return err
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("other users can write in the directory, whose mode is %v, and could bring back an older file: make it writable for this user alone (chmod go-w %s), or name a directory below it, which is then made so",
			info.Mode(), f.dir)
	case !ownedBy(info, os.Geteuid()) && !ownedBy(info, 0):
		return fmt.Errorf("the directory belongs to another user, who could bring back an older file: give it to this user (chown %d %s), or name another one", os.Geteuid(), f.dir)
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
func (f *File) MakeDir() error { return os.MkdirAll(f.dir, 0o700) }

// News is a record to be merged into the file.
type News struct {
	Record
	// Encode returns Record.Resource, which is then not set. It may use the memory that it is given. The
	// resources are needed one after the other, and not kept.
	Encode func(b []byte) []byte
}

// Merge puts records into the file, over older ones of the same keys; or, if discard is set, in its place. One
// that is Refused only takes the place of another, unless there may be other variants
// of the name. left is how many records did not fit. The error may be ErrLocked. If it is
// ErrRemoved, there is no file: what is refused must not be found, whatever else is lost with it.
//
// The resources go from one file to the other one by one. Merge remembers some 50 bytes of each.
func (f *File) Merge(news []News, discard bool, now time.Time) (left int, err error) {
	if err := f.checkDir(); err != nil {
		return 0, err
	}
	unlock, err := lock(f.dir)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if !f.pruned {
		f.pruned = true
		f.prune(now)
	}
	var m merger
	if !discard {
		file, err := f.open()
		if err == nil {
			defer file.Close()
			m, err = f.index(file, now)
		}
		if err != nil {
			m = merger{} // what cannot be read is replaced
		}
	}
	if since, err := f.markedSince(); err != nil {
		m.securedSince = now
	} else if since.After(m.securedSince) {
		m.securedSince = since
	}
	m.add(news, now)
	err = f.write(&m, now, &left)
	if err == nil {
		return left, f.syncDir(f.dir)
	}
	if (m.refuses || discard) && os.Remove(f.path) == nil {
		err = fmt.Errorf("%w; %w", errors.Join(err, f.syncDir(f.dir)), ErrRemoved)
	}
	return left, err
}

// merger is the list of what a new file has.
type merger struct {
	old *os.File
	// securedSince is that of the header.
	securedSince time.Time
	entries      []entry
	// byKey has the places in entries, and withResource the names with resources, in any variant.
	byKey        map[uint64]int
	withResource map[uint64]bool
	// refuses says that something is refused that the old file has.
	refuses bool
}

// entry is a record of a new file: the message at a place in the old one, or news. Its key is a hash, as a
// file has the keys of more than a hundred thousand records.
type entry struct {
	key    uint64
	at     int64 // nanoseconds since 1970
	offset int64
	size   int32
	// ahead says that a clock ahead of this one has written the record, at an unknown time.
	ahead, refused, secured bool
	news                    *News
}

var seed = maphash.MakeSeed()

// index reads what a file has.
func (f *File) index(file *os.File, now time.Time) (merger, error) {
	m := merger{old: file, byKey: make(map[uint64]int), withResource: make(map[uint64]bool)}
	h, err := f.scan(file, func(message []byte, offset int64) error {
		var r Record
		if err := r.parse(message, false); err != nil {
			return err
		}
		if now.Sub(r.Time) > f.maxAge {
			return nil
		}
		e := entry{key: maphash.Comparable(seed, r.Key), at: r.Time.UnixNano(), offset: offset, size: int32(len(message)), refused: r.Refused, secured: r.Secured}
		if r.Time.After(now) {
			e.at, e.ahead = now.UnixNano(), true
		}
		m.byKey[e.key] = len(m.entries)
		m.entries = append(m.entries, e)
		m.noteName(&r)
		return nil
	})
	if err == nil {
		err = f.checkSecured(h)
	}
	m.securedSince = h.securedSince
	return m, err
}

func (m *merger) noteName(r *Record) {
	if !r.Refused {
		m.withResource[maphash.Comparable(seed, r.name())] = true
	}
}

// add adds news.
func (m *merger) add(news []News, now time.Time) {
	if m.byKey == nil {
		m.byKey, m.withResource = make(map[uint64]int, len(news)), make(map[uint64]bool, len(news))
	}
	for i := range news {
		m.noteName(&news[i].Record)
	}
	for i := range news {
		r := &news[i]
		e := entry{key: maphash.Comparable(seed, r.Key), at: r.Time.UnixNano(), refused: r.Refused, secured: r.Secured, news: r}
		others := m.withResource[maphash.Comparable(seed, r.name())]
		place, known := m.byKey[e.key]
		switch {
		case known && (m.entries[place].ahead || e.at >= m.entries[place].at):
			m.refuses = m.refuses || e.refused && !m.entries[place].refused
			m.noteSecured(&e, m.entries[place].secured, now)
			m.entries[place] = e
		case !known && (!r.Refused || r.Constraints != "" || others):
			m.refuses = m.refuses || r.Refused && others
			m.noteSecured(&e, false, now)
			m.byKey[e.key] = len(m.entries)
			m.entries = append(m.entries, e)
		}
	}
	slices.SortStableFunc(m.entries, func(a, b entry) int { return cmp.Compare(b.at, a.at) })
}

// noteSecured notes that a resource asks for security which the file did not know of.
func (m *merger) noteSecured(e *entry, before bool, now time.Time) {
	if e.secured && !before && m.securedSince.Before(now) {
		m.securedSince = now
	}
}

// prune removes the files of the directory that were not written for long, temporary ones of processes
// that ended in between among them, and the oldest of too many.
func (f *File) prune(now time.Time) {
	entries, _ := os.ReadDir(f.dir)
	var files []fs.FileInfo
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) || !strings.Contains(e.Name(), suffix) || strings.HasSuffix(e.Name(), suffix+securedSuffix) || e.Name() == filepath.Base(f.path) {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for i, info := range files {
		temporary := strings.HasSuffix(info.Name(), ".tmp") && now.Sub(info.ModTime()) > time.Hour
		if temporary || i >= maxFiles-1 || now.Sub(info.ModTime()) > max(f.maxAge, abandoned) {
			path := filepath.Join(f.dir, info.Name())
			os.Remove(path)
			os.Remove(path + securedSuffix)
		}
	}
}
