package folder

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/mesh/internal/document"
)

// A file that is written in place is half written for a while, and a file that is replaced by "rm" and "cp" is not
// there for a while. So a change counts only once it is settled: when two looks at the file, settling apart,
// find the same size and time, or both find no file.
//
//	look at 0.0 s   backend.yaml has 64 kB, and another time than the text that counts   not settled
//	look at 0.5 s   it has 1 MB                                                          not settled
//	look at 1.0 s   it has 1 MB and the same time                                        it is read, and counts
//
// A change that nobody can see half of counts at once: a file that was renamed to this name, a symbolic
// link that leads to another file, and all files of a folder whose link was swapped (place.go).

// settling is the time between two looks that find a file unchanged.
const settling = 500 * time.Millisecond

// patience bounds the wait of Settled for files that change all the time.
const patience = 10 * time.Second

// change is a change of a file that does not count yet.
type change struct {
	state
	// since is when the file was first seen in this state, and first when it was first seen to change.
	since, first time.Time
	// settled says that it counts: the reader cannot take it, which is an error until it changes again.
	settled bool
}

// state is what a look finds at a name. The zero value is that of no file.
type state struct {
	info os.FileInfo
	// target is what the name leads to by symbolic links, empty if it is none.
	target string
	// dangling is the target of a link that leads nowhere, or empty.
	dangling string
}

// stateOf returns the state of a path. A folder is no file.
func stateOf(path string) (s state, err error) {
	link, err := os.Lstat(path)
	if os.IsNotExist(err) {
		return state{}, nil
	}
	if err != nil || link.Mode()&fs.ModeSymlink == 0 {
		s.info = link
	} else if s.info, err = os.Stat(path); err == nil { // before EvalSymlinks, whose error of a loop names no file
		s.target, err = filepath.EvalSymlinks(path)
	}
	switch {
	case os.IsNotExist(err):
		if s.dangling, err = os.Readlink(path); os.IsNotExist(err) {
			return state{}, nil
		}
		return state{dangling: s.dangling}, err
	case err != nil:
		return state{}, err
	case s.info.IsDir():
		return state{}, nil
	}
	return s, nil
}

func (s state) absent() bool { return s.info == nil && s.dangling == "" }

// same reports whether two looks have found the same.
func (s state) same(o state) bool {
	if s.info == nil || o.info == nil {
		return s.info == nil && o.info == nil && s.dangling == o.dangling
	}
	return s.target == o.target && sameFile(s.info, o.info)
}

func sameFile(a, b os.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && os.SameFile(a, b)
}

// settled reports whether a changed state of a file counts, and notes it if it does not yet.
func (r *Reader) settled(name string, now state) bool {
	if r.swapped {
		return true
	}
	if now.info != nil && (movedHere(now.info) || now.target != "" && (r.files[name] == nil || r.files[name].target != now.target)) {
		return true
	}
	at := r.began // so that what is found at one look counts at one look
	c := r.unsettled[name]
	if c == nil || !c.same(now) {
		first := at
		if c != nil {
			first = c.first
		}
		c = &change{state: now, since: at, first: first}
		// At the first look the time of a file is all that is known. Later it is not relied upon: the clock of a file
		// server may be late.
		if !r.looked && now.info != nil && now.info.ModTime().Before(at) {
			c.since = now.info.ModTime()
		}
		r.unsettled[name] = c
	}
	c.settled = at.Sub(c.since) >= settling
	return c.settled
}

// Again returns when to look again because of changes that do not count yet. ok is false if there are none, or an error of the file
// system hides them.
func (r *Reader) Again() (at time.Time, ok bool) {
	if _, isFaulty := r.err.(*document.Faults); r.err != nil && !isFaulty {
		return at, false
	}
	for _, c := range r.unsettled {
		if next := c.since.Add(settling); !c.settled && (!ok || next.Before(at)) {
			at, ok = next, true
		}
	}
	return at, ok
}

// Busy returns the names of the files that have been changing for ten seconds or longer.
func (r *Reader) Busy() (names []string) {
	now := r.now()
	for name, c := range r.unsettled {
		if !c.settled && now.Sub(c.first) >= patience {
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
