package folder

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
	// looked says that this is not the first look, and place is where the last one without an error found the files. swapped
	// says that this look finds them elsewhere, and began is when it began.
	looked  bool
	place   place
	swapped bool
	began   time.Time
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
	changed, err := r.look()
	if err != nil {
		return r.failed(err)
	}
	// After an error of the file system the files need not have changed.
	if _, isFaulty := r.err.(*document.Faults); changed || r.content == nil && !isFaulty {
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

// ticks is the time after which a further change of a file has another modification time: the clocks of file
// systems have ticks of up to 2 s.
const ticks = 2 * time.Second

// look updates all files, and reports whether the text of one changed.
func (r *Reader) look() (changed bool, err error) {
	for range maxSwaps {
		at, files, unsettled := placeOf(r.dir), maps.Clone(r.files), maps.Clone(r.unsettled)
		changed, err = r.lookAt(at)
		if placeOf(r.dir) == at {
			return changed, err
		}
		r.files, r.unsettled = files, unsettled // as some of what was found may be of the former place
	}
	return false, fmt.Errorf("the folder %s is another one at each look: a link that leads to it changes all the time", r.dir)
}

func (r *Reader) lookAt(at place) (changed bool, err error) {
	paths, err := at.list(r.dir)
	if err != nil {
		return false, err
	}
	r.began = r.now()
	r.swapped = at.isSwapped(r.place)
	maps.DeleteFunc(r.unsettled, func(name string, _ *change) bool { return r.files[name] == nil && paths[name] == "" })
	names := slices.Sorted(maps.Keys(paths))
	for name := range r.files {
		if paths[name] == "" {
			names = append(names, name) // behind the name that it may have now
		}
	}
	for _, name := range names {
		fresh, err := r.lookAtFile(name, paths)
		if err != nil {
			return false, err
		}
		changed = changed || fresh
	}
	r.looked, r.place = true, at
	return changed, nil
}

// lookAtFile updates a file, and reports whether its text changed. It has no path if it is gone.
func (r *Reader) lookAtFile(name string, paths map[string]string) (changed bool, err error) {
	path := paths[name]
	now, err := stateOf(path)
	if err != nil {
		return false, err
	}
	f := r.files[name]
	if f != nil && f.same(now) {
		delete(r.unsettled, name)
		if f.at.Sub(f.info.ModTime()) > ticks {
			return false, nil
		}
		return r.take(name, path, now)
	}
	if f == nil && now.absent() {
		delete(r.unsettled, name)
		return false, nil
	}
	if !r.renamed(f, now, paths) && !r.settled(name, now) {
		return false, nil
	}
	return r.take(name, path, now)
}

// take makes the present state of a file count, and reports whether its text changed.
func (r *Reader) take(name, path string, now state) (changed bool, err error) {
	f, shown := r.files[name], filepath.Join(r.dir, name)
	switch {
	case now.dangling != "":
		return false, fmt.Errorf("%s is a link to %s, which does not exist: put the file there, or delete the link", shown, now.dangling)
	case now.absent():
		delete(r.unsettled, name)
		delete(r.files, name)
		return f != nil, nil
	case !now.info.Mode().IsRegular():
		return false, fmt.Errorf("%s is not a regular file", shown) // a pipe may never end
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
		r.files[name] = &read{File: f.File, state: now, data: data, at: at}
		return false, nil
	}
	r.files[name] = &read{File: Parse(shown, data), state: now, data: data, at: at}
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

// renamed reports whether a file that is gone counts under another name.
func (r *Reader) renamed(f *read, now state, paths map[string]string) bool {
	if f == nil || !now.absent() {
		return false
	}
	for name := range paths {
		if other := r.files[name]; other != nil && other != f && os.SameFile(other.info, f.info) {
			return true
		}
	}
	return false
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
