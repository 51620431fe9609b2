package diskcache

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
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
	c, err := f.read(now)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Contents{}, nil
	case err != nil:
		return Contents{}, fmt.Errorf("resource cache %s: %w", f.path, err)
	}
	for i := range c.Records {
		c.Records[i].Time = earlier(c.Records[i].Time, now)
	}
	if len(c.Records) == 0 && c.Old > 0 {
		return Contents{}, fmt.Errorf("resource cache %s: it is too old: written %v ago, and max_age is %v", f.path, now.Sub(c.Written).Round(time.Second), f.maxAge)
	}
	return c, nil
}

func (f *File) read(now time.Time) (Contents, error) {
	file, err := os.OpenFile(f.path, os.O_RDONLY|withoutWaiting, 0)
	if err != nil {
		return Contents{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return Contents{}, err
	case !info.Mode().IsRegular():
		return Contents{}, errors.New("it is not a regular file")
	case runtime.GOOS != "windows" && (info.Mode().Perm()&0o077 != 0 || !ownFile(info)):
		return Contents{}, fmt.Errorf("its owner or its mode, %v, lets others read or write it; expected a file of this user with mode 0600", info.Mode())
	case info.Size() > MaxBytes:
		return Contents{}, fmt.Errorf("it has %d bytes, and the limit is %d", info.Size(), MaxBytes)
	}
	b, err := io.ReadAll(io.LimitReader(file, MaxBytes+1))
	if err != nil {
		return Contents{}, err
	}
	return f.parse(b, now)
}

// parse reads the contents of a file.
func (f *File) parse(b []byte, now time.Time) (Contents, error) {
	if !bytes.HasPrefix(b, []byte(Magic)) {
		return Contents{}, errors.New("it is of another format or version")
	}
	if len(b) < len(Magic)+sha256.Size {
		return Contents{}, errors.New("it is corrupt: it is cut short")
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if found := sha256.Sum256(body); !bytes.Equal(found[:], sum) {
		return Contents{}, errors.New("it is corrupt: its checksum is wrong")
	}
	body = body[len(Magic):]
	first, n := protowire.ConsumeBytes(body)
	var h header
	if n < 0 {
		return Contents{}, fmt.Errorf("it is corrupt: %w", protowire.ParseError(n))
	}
	if err := h.parse(first); err != nil {
		return Contents{}, fmt.Errorf("it is corrupt: %w", err)
	}
	if h.bootstrap != f.bootstrap {
		return Contents{}, errors.New("it is of another bootstrap or node")
	}
	c := Contents{Written: earlier(h.written, now)}
	for body = body[n:]; len(body) > 0; body = body[n:] {
		var message []byte
		if message, n = protowire.ConsumeBytes(body); n < 0 {
			return Contents{}, fmt.Errorf("it is corrupt: %w", protowire.ParseError(n))
		}
		if len(c.Records)+c.Old == MaxRecords {
			return Contents{}, fmt.Errorf("it has more than %d resources", MaxRecords)
		}
		var r Record
		if err := r.parse(message); err != nil {
			return Contents{}, fmt.Errorf("it is corrupt: %w", err)
		}
		if now.Sub(r.Time) > f.maxAge {
			c.Old++
			continue
		}
		c.Records = append(c.Records, r)
	}
	return c, nil
}

func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}

// MakeDir makes the directory if it is not there.
func (f *File) MakeDir() error { return os.MkdirAll(f.dir, 0o700) }

// Merge puts records into the file, over older ones of the same keys. One that is Refused only takes
// the place of another. left is how many records did not fit. The error may be ErrLocked. If it is
// ErrRemoved, there is no file: what is refused must not be found, whatever else is lost with it.
func (f *File) Merge(records []Record, now time.Time) (left int, err error) {
	unlock, err := lock(f.dir)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if !f.pruned {
		f.pruned = true
		f.prune(now)
	}
	old, _ := f.read(now) // what cannot be read is replaced
	merged := make(map[Key]*Record, len(old.Records)+len(records))
	ahead := make(map[Key]struct{}) // written by a clock ahead of this one, at an unknown time
	for i := range old.Records {
		r := &old.Records[i]
		if r.Time.After(now) {
			r.Time, ahead[r.Key] = now, struct{}{}
		}
		merged[r.Key] = r
	}
	refuses := false
	for i := range records {
		r := &records[i]
		_, unknown := ahead[r.Key]
		if known := merged[r.Key]; known == nil && !r.Refused || known != nil && (unknown || r.supersedes(known)) {
			refuses = refuses || r.Refused && !known.Refused
			merged[r.Key] = r
		}
	}
	list := make([]*Record, 0, len(merged))
	for _, r := range merged {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *Record) int {
		return cmp.Or(b.Time.Compare(a.Time), strings.Compare(a.TypeURL, b.TypeURL), strings.Compare(a.Name, b.Name), strings.Compare(a.Member, b.Member))
	})
	b, left := f.encode(list, now)
	if err = f.replace(b); err == nil {
		return left, f.syncDir(f.dir)
	}
	if refuses && os.Remove(f.path) == nil {
		err = fmt.Errorf("%w; %w", errors.Join(err, f.syncDir(f.dir)), ErrRemoved)
	}
	return left, err
}

// encode returns the contents of a file with the records, as far as they fit.
func (f *File) encode(records []*Record, now time.Time) (b []byte, left int) {
	h := header{f.bootstrap, now}
	b = protowire.AppendBytes([]byte(Magic), h.append(nil))
	var message []byte
	kept := 0
	for _, r := range records {
		message = r.append(message[:0])
		if kept == MaxRecords || len(b)+len(message)+protowire.SizeVarint(uint64(len(message)))+sha256.Size > MaxBytes {
			continue
		}
		b = protowire.AppendBytes(b, message)
		kept++
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...), len(records) - kept
}

// replace puts a new file in the place of the old one, or leaves the old one as it is.
func (f *File) replace(b []byte) (err error) {
	file, err := os.CreateTemp(f.dir, filepath.Base(f.path)+".*.tmp") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(file.Name())
		}
	}()
	_, err = file.Write(b)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), f.path)
}

// prune removes the files of the directory that were not written for long, temporary ones of processes
// that ended in between among them, and the oldest of too many.
func (f *File) prune(now time.Time) {
	entries, _ := os.ReadDir(f.dir)
	var files []fs.FileInfo
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) || !strings.Contains(e.Name(), suffix) || e.Name() == filepath.Base(f.path) {
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
			os.Remove(filepath.Join(f.dir, info.Name()))
		}
	}
}
