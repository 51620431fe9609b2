package folder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/mesh/internal/document"
)

// Reader reads one folder repeatedly. It is for one goroutine.
//
// A file that is being written counts with the text that it had before: see settle.go.
type Reader struct {
	dir string
	// place is where the last look without an error found the files, zero before there was one.
	place  place
	files  map[string]*seen
	parser Parser
	// unread is why the last look found nothing, or not all.
	unread error
	now    func() time.Time
}

// New returns a reader of a folder. It does not read it yet.
func New(dir string) *Reader {
	return &Reader{dir: dir, files: map[string]*seen{}, parser: Parser{Dir: dir}, now: time.Now}
}

// Read returns the present content of the folder. If nothing changed since the last call, content and
// error are the same pointers. An error in the text of files is a *document.Faults; then there is no
// content.
//
// A change that may be half of one does not count yet; Again says when to look again.
func (r *Reader) Read() (*Content, error) {
	if err := r.look(); err != nil {
		if several, ok := errors.AsType[*document.Faults](err); ok { // of single files
			if _, err := r.parser.Parse(r.Texts()); err != nil {
				others, _ := errors.AsType[*document.Faults](err)
				several.AddAll(others)
			}
		}
		if r.unread == nil || r.unread.Error() != err.Error() {
			r.unread = err
		}
		return nil, r.unread
	}
	r.unread = nil
	return r.parser.Parse(r.Texts())
}

// Texts returns the files as they were last read, by name, also if they are faulty.
func (r *Reader) Texts() map[string]string {
	texts := make(map[string]string)
	for name, f := range r.files {
		if f.info != nil {
			texts[name] = f.text
		}
	}
	return texts
}

// Again returns when to look again because of changes that do not count yet. ok is false if there are none, or an error of the file
// system hides them.
func (r *Reader) Again() (at time.Time, ok bool) {
	for _, f := range r.files {
		if next := f.since.Add(settling); r.unread == nil && !f.since.IsZero() && (!ok || next.Before(at)) {
			at, ok = next, true
		}
	}
	return at, ok
}

// Busy returns the names of the files that have been changing for ten seconds or longer.
func (r *Reader) Busy() (names []string) {
	for name, f := range r.files {
		if f.since.Sub(f.first) >= patience {
			names = append(names, name)
		}
	}
	return names
}

// Settled is Read once all changes count. It fails if a file changes all the time.
func (r *Reader) Settled(ctx context.Context) (*Content, error) {
	for {
		content, err := r.Read()
		next, waits := r.Again()
		if !waits {
			return content, err
		}
		if busy := r.Busy(); len(busy) > 0 {
			return nil, fmt.Errorf("%s never stops changing: write a temporary file and rename it", filepath.Join(r.dir, busy[0]))
		}
		if err := retries.Wait(ctx, next.Sub(r.now())); err != nil {
			return nil, err
		}
	}
}

// look updates all files.
func (r *Reader) look() error {
	for range maxSwaps {
		l := look{Reader: r, here: placeOf(r.dir), began: r.now(), next: maps.Clone(r.files)}
		err := l.all()
		if placeOf(r.dir) != l.here {
			continue // some of what was found may be of the former place
		}
		r.files = l.next
		if err == nil {
			r.place = l.here
		}
		return err
	}
	return fmt.Errorf("the folder %s is another one at each look: a link that leads to it changes all the time", r.dir)
}

// look is one look at a folder, which counts if the files stay in the same place meanwhile.
type look struct {
	*Reader
	here  place
	began time.Time
	// paths are those of the files that there are, by name. next are the Reader's files after this look.
	paths map[string]string
	next  map[string]*seen
}

func (l *look) all() (err error) {
	if l.paths, err = l.here.list(l.dir); err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(l.paths))
	for name := range l.next {
		if l.paths[name] == "" {
			names = append(names, name) // behind the name that it may have now
		}
	}
	var unread document.Faults
	for _, name := range names {
		if err := l.at(name); err != nil {
			unread.Add(document.Fault{Problem: err.Error()})
		}
	}
	return unread.Err()
}

// ticks is the time after which a further change of a file has another modification time: the clocks of file
// systems have ticks of up to 2 s.
const ticks = 2 * time.Second

// at updates a file, whose path is empty if it is gone.
func (l *look) at(name string) error {
	now, err := stateOf(l.paths[name])
	if err != nil {
		return err
	}
	var f seen
	if known := l.next[name]; known != nil {
		f = *known
	}
	switch {
	case f.same(now):
		if f.info == nil {
			delete(l.next, name)
			return nil
		}
		if !f.since.IsZero() {
			f.since, f.first = time.Time{}, time.Time{}
			l.set(name, f)
		}
		if f.at.Sub(f.info.ModTime()) > ticks {
			return nil
		}
	case l.isWhole(name, f, now):
	default:
		if f.since.IsZero() || !f.found.same(now) {
			f.changes(now, l.began) // so that what is found at one look counts at one look
			// At the first look the time of a file is all that is known. Later it is not relied upon: the clock of a file
			// server may be late.
			if l.place == (place{}) && now.info != nil && now.info.ModTime().Before(l.began) {
				f.since = now.info.ModTime()
			}
			l.set(name, f)
		}
		if l.began.Sub(f.since) < settling {
			return nil
		}
	}
	return l.take(name, f, now)
}

func (l *look) set(name string, f seen) { l.next[name] = &f }

// take makes the present state of a file count.
func (l *look) take(name string, f seen, now state) error {
	shown := filepath.Join(l.dir, name)
	switch {
	case now.absent():
		delete(l.next, name)
		return nil
	case now.info == nil:
		return fmt.Errorf("%s is a link to %s, which does not exist: put the file there, or delete the link", shown, now.target)
	case !now.info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", shown) // a pipe may never end
	}
	at := l.now()
	data, after, err := readBounded(l.paths[name])
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if err != nil || !sameFile(now.info, after) {
		f.changes(state{}, at) // while it is read
		l.set(name, f)
		return nil
	}
	l.set(name, seen{state: now, text: string(data), at: at})
	return nil
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
