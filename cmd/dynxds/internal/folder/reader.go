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

// Reader reads one folder repeatedly. It is for one goroutine.
type Reader struct {
	dir    string
	files  map[string]*read
	joiner *Joiner
	// content and err are the last result.
	content *Content
	err     error
	now     func() time.Time
}

// read is a file as it was read.
type read struct {
	*File
	info os.FileInfo
	data []byte
	// at is the time at which data was read.
	at time.Time
}

// New returns a reader of a folder. It does not read it yet.
func New(dir string) *Reader {
	return &Reader{dir: dir, files: map[string]*read{}, joiner: NewJoiner(dir), now: time.Now}
}

// Read returns the present content of the folder. If nothing changed since the last call, content and
// error are the same pointers. An error in the text of files is a *document.Faults; then there is no
// content.
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
	// The last result was an error of the file system: the files need not have changed.
	if _, ok := r.err.(*document.Faults); r.err != nil && !ok {
		changed = true
	}
	if changed {
		r.content, r.err = r.join(names)
	}
	return r.content, r.err
}

// Texts returns the files as they were last read, by name, also if they are faulty.
func (r *Reader) Texts() map[string]string {
	texts := make(map[string]string, len(r.files))
	for name, f := range r.files {
		texts[name] = string(f.data)
	}
	return texts
}

// failed keeps an error of the file system: the old one if the texts are equal.
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
		if IsName(name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// IsName reports whether a file of this name is read: its extension is .yaml, .yml or .json, and it is
// neither hidden nor in a folder.
func IsName(name string) bool {
	if strings.HasPrefix(name, ".") || strings.Contains(name, "/") {
		return false
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// forget drops files that no longer exist, and reports whether there were any.
func (r *Reader) forget(names []string) bool {
	before := len(r.files)
	maps.DeleteFunc(r.files, func(name string, _ *read) bool {
		_, found := slices.BinarySearch(names, name)
		return !found
	})
	return len(r.files) < before
}

// settled is the time after which a further change of a file has another modification time: file
// systems have ticks of up to 2 s.
const settled = 2 * time.Second

// readFile updates a file, and reports whether its text changed.
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
	if f != nil && same(f.info, info) && f.at.Sub(f.info.ModTime()) > settled {
		return false, nil
	}
	now := r.now()
	data, err := readBounded(path)
	if err != nil {
		return r.removed(name, err)
	}
	if f != nil && slices.Equal(f.data, data) {
		f.info, f.at = info, now
		return false, nil
	}
	r.files[name] = &read{File: Parse(path, data), info: info, data: data, at: now}
	return true, nil
}

// readBounded reads at most one byte more than parse accepts: the file may have grown since Stat.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, document.MaxSize+1))
}

// removed drops a file that does not exist: it was deleted after the folder was listed, or it is a
// broken link or a folder. Any other error is returned.
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

func (r *Reader) join(names []string) (*Content, error) {
	files := make([]*File, 0, len(names))
	for _, name := range names {
		if f := r.files[name]; f != nil {
			files = append(files, f.File)
		}
	}
	return r.joiner.Join(files)
}
