package folder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dynxds/dynxds/internal/document"
)

// Reader reads one folder again and again. It is for one goroutine.
type Reader struct {
	dir   string
	files map[string]*file
	// content and err are the last result.
	content *Content
	err     error
	now     func() time.Time
}

// file is what is known of one file.
type file struct {
	info os.FileInfo
	data []byte
	// readAt is when data was read.
	readAt  time.Time
	content *Content
	faults  *document.Faults
}

// New returns a reader of a folder, which it does not look at yet.
func New(dir string) *Reader {
	return &Reader{dir: dir, files: map[string]*file{}, now: time.Now}
}

// Dir returns the folder's path, as it was given to New.
func (r *Reader) Dir() string { return r.dir }

// Read returns what the folder says now. If nothing changed since the last call it
// returns the same pointers, to content or to an error. An error that is about files'
// text is a *document.Faults; then there is no content.
func (r *Reader) Read() (*Content, error) {
	names, err := r.list()
	if err != nil {
		return r.failed(err)
	}
	changed := r.content == nil && r.err == nil || r.forget(names)
	for _, name := range names {
		fresh, err := r.readFile(name)
		if err != nil {
			return r.failed(err)
		}
		changed = changed || fresh
	}
	// An error of the file system came between: what is known is as good as before.
	if _, ok := r.err.(*document.Faults); r.err != nil && !ok {
		changed = true
	}
	if changed {
		r.content, r.err = r.join(names)
	}
	return r.content, r.err
}

// failed keeps an error of the file system, the same as long as it says the same.
func (r *Reader) failed(err error) (*Content, error) {
	if r.err == nil || r.err.Error() != err.Error() {
		r.err = err
	}
	r.content = nil
	return nil, r.err
}

// list returns the names of the files to read, in order.
func (r *Reader) list() ([]string, error) {
	entries, err := os.ReadDir(r.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no folder %s", r.dir)
	case errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("%s is no folder; name the one that the files are in", r.dir)
	case err != nil:
		return nil, err
	}
	var names []string
	for _, e := range entries {
		name := e.Name()
		if isRead(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

func isRead(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// forget drops files that are no longer there, and reports whether there were any.
func (r *Reader) forget(names []string) bool {
	before := len(r.files)
	maps.DeleteFunc(r.files, func(name string, _ *file) bool {
		_, found := slices.BinarySearch(names, name)
		return !found
	})
	return len(r.files) < before
}

// settled is how long after a file's last change its time can be trusted to differ
// from that of the next one: file systems keep time by ticks, the coarsest of 2 s.
const settled = 2 * time.Second

// readFile brings what is known of a file up to date, and reports whether its text
// changed.
func (r *Reader) readFile(name string) (changed bool, err error) {
	path := filepath.Join(r.dir, name)
	info, err := os.Stat(path)
	if err != nil {
		return r.removed(name, err)
	}
	if info.IsDir() {
		return r.removed(name, fs.ErrNotExist)
	}
	if !info.Mode().IsRegular() {
		return false, fmt.Errorf("%s is not a regular file", path) // a pipe may never end
	}
	f := r.files[name]
	if f != nil && same(f.info, info) && f.readAt.Sub(f.info.ModTime()) > settled {
		return false, nil
	}
	now := r.now()
	data, err := readBounded(path)
	if err != nil {
		return r.removed(name, err)
	}
	if f != nil && slices.Equal(f.data, data) {
		f.info, f.readAt = info, now
		return false, nil
	}
	r.files[name] = parse(path, info, data, now)
	return true, nil
}

// readBounded reads of a file, of which it is not known what it has become since it
// was looked at, what parse takes, and a byte more, which is then a fault.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, document.MaxSize+1))
}

// removed forgets a file that could not be opened because it does not exist: it was
// deleted after the folder was listed, or it is a broken link or a folder. Any other
// error is returned.
func (r *Reader) removed(name string, err error) (changed bool, _ error) {
	if !os.IsNotExist(err) {
		return false, err
	}
	_, known := r.files[name]
	delete(r.files, name)
	return known, nil
}

func same(a, b os.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}

// join puts the files together and checks what no file can know alone.
func (r *Reader) join(names []string) (*Content, error) {
	var faults document.Faults
	c := &Content{}
	for _, name := range names {
		f := r.files[name]
		if f == nil {
			continue
		}
		c.Files++
		c.add(f.content)
		faults.AddAll(f.faults)
	}
	checkNames(c, &faults)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	return c, nil
}
