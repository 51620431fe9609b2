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

	"github.com/dynxds/dynxds/mesh/internal/document"
)

// Reader reads one folder repeatedly. It is for one goroutine.
//
// A file that is being written counts with the text that it had before: see settle.go.
type Reader struct {
	dir   string
	files map[string]*read
	// unsettled are the changes that do not count yet, by the names of files.
	unsettled map[string]*change
	// looked says that this is not the first look.
	looked bool
	// content and err are the last result.
	content *Content
	err     error
	now     func() time.Time
}

// read is a file as it was read.
type read struct {
	*File
	state
	data []byte
	// at is the time at which data was read.
	at time.Time
}

// New returns a reader of a folder. It does not read it yet.
func New(dir string) *Reader {
	return &Reader{dir: dir, files: map[string]*read{}, unsettled: map[string]*change{}, now: time.Now}
}

// Read returns the present content of the folder. If nothing changed since the last call, content and
// error are the same pointers. An error in the text of files is a *document.Faults; then there is no
// content.
//
// A change that may be half of one does not count yet; Again says when to look again.
func (r *Reader) Read() (*Content, error) {
	names, err := r.list()
	if err != nil {
		return r.failed(err)
	}
	changed := r.content == nil && r.err == nil
	for _, name := range names {
		fresh, err := r.look(name)
		if err != nil {
			return r.failed(err)
		}
		changed = changed || fresh
	}
	changed = r.forget(names) || changed
	r.looked = true
	// The last result was an error of the file system: the files need not have changed.
	if _, ok := r.err.(*document.Faults); r.err != nil && !ok {
		changed = true
	}
	if changed {
		r.content, r.err = r.join()
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
		return nil, fmt.Errorf("%s is not a folder; name the folder that has the files", r.dir)
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

// ticks is the time after which a further change of a file has another modification time: the clocks of file
// systems have ticks of up to 2 s.
const ticks = 2 * time.Second

// look updates a file, and reports whether its text changed.
func (r *Reader) look(name string) (changed bool, err error) {
	now, err := stateOf(filepath.Join(r.dir, name))
	if err != nil {
		return false, err
	}
	f := r.files[name]
	if f != nil && f.same(now) {
		delete(r.unsettled, name)
		if f.at.Sub(f.info.ModTime()) > ticks {
			return false, nil
		}
		return r.take(name, now)
	}
	if f == nil && now.absent() {
		delete(r.unsettled, name)
		return false, nil
	}
	if !r.settled(name, now) {
		return false, nil
	}
	return r.take(name, now)
}

// take makes the present state of a file count, and reports whether its text changed.
func (r *Reader) take(name string, now state) (changed bool, err error) {
	path := filepath.Join(r.dir, name)
	f := r.files[name]
	switch {
	case now.dangling != "":
		return false, fmt.Errorf("%s is a link to %s, which does not exist: put the file there, or delete the link", path, now.dangling)
	case now.absent():
		delete(r.unsettled, name)
		delete(r.files, name)
		return f != nil, nil
	case !now.info.Mode().IsRegular():
		return false, fmt.Errorf("%s is not a regular file", path) // a pipe may never end
	}
	at := r.now()
	data, after, err := readBounded(path)
	if err != nil && !os.IsNotExist(err) {
		return false, err
	}
	if err != nil || !sameFile(now.info, after) {
		// It was changed while it was read.
		r.unfinished(name, at)
		return false, nil
	}
	delete(r.unsettled, name)
	if f != nil && slices.Equal(f.data, data) {
		f.state, f.at = now, at
		return false, nil
	}
	r.files[name] = &read{File: Parse(path, data), state: now, data: data, at: at}
	return true, nil
}

// unfinished notes that a file changes while it is read.
func (r *Reader) unfinished(name string, at time.Time) {
	c := &change{since: at, first: at}
	if before := r.unsettled[name]; before != nil {
		c.first = before.first
	}
	r.unsettled[name] = c
}

// forget drops the files that are no longer in the folder, and reports whether there were any.
func (r *Reader) forget(names []string) (changed bool) {
	isListed := func(name string) bool {
		_, listed := slices.BinarySearch(names, name)
		return listed
	}
	for name := range r.unsettled {
		if r.files[name] == nil && !isListed(name) {
			delete(r.unsettled, name)
		}
	}
	for name, f := range r.files {
		if isListed(name) || !r.renamed(f, names) && !r.settled(name, state{}) {
			continue
		}
		delete(r.files, name)
		delete(r.unsettled, name)
		changed = true
	}
	return changed
}

// renamed reports whether a file that is gone counts under another name.
func (r *Reader) renamed(gone *read, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		f := r.files[name]
		return f != nil && os.SameFile(f.info, gone.info)
	})
}

// readBounded reads at most one byte more than parse accepts: the file may have grown since Stat. It also returns
// the state of the file afterwards.
func readBounded(path string) ([]byte, os.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, document.MaxSize+1))
	if err != nil {
		return nil, nil, err
	}
	after, err := f.Stat()
	return data, after, err
}

func (r *Reader) join() (*Content, error) {
	files := make([]*File, 0, len(r.files))
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		files = append(files, r.files[name].File)
	}
	return Join(r.dir, files)
}
