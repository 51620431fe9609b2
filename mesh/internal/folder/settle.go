package folder

import (
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// A file that is written in place is half written for a while, and a file that is replaced by "rm" and "cp" is not
// there for a while. So a change counts only once it is settled: when two looks at the file, settling apart,
// find the same size and times, or both find no file.
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

// seen is what is known of a name of the folder.
type seen struct {
	// text is what counts, if the state has a file. It was read at a time, in this state.
	state
	text string
	at   time.Time
	// found is a state that does not count yet, in which the file has been since a time. It has been changing since first. Both are zero
	// if what was found last counts.
	found        state
	since, first time.Time
}

// changes notes that another state is found.
func (f *seen) changes(found state, at time.Time) {
	if f.found, f.since = found, at; f.first.IsZero() {
		f.first = at
	}
}

// state is what a look finds at a name. The zero value is that of no file.
type state struct {
	info os.FileInfo
	// target is what the name leads to by symbolic links, empty if it is none. Without info there is nothing.
	target string
}

// stateOf returns the state of a path. A folder is no file.
func stateOf(path string) (s state, err error) {
	if s.info, err = os.Lstat(path); err == nil && s.info.Mode()&fs.ModeSymlink != 0 {
		if s.info, err = os.Stat(path); err == nil { // before EvalSymlinks, whose error of a loop names no file
			s.target, err = filepath.EvalSymlinks(path)
		}
		if os.IsNotExist(err) {
			s.info = nil
			s.target, err = os.Readlink(path)
		}
	}
	if os.IsNotExist(err) || err == nil && s.info != nil && s.info.IsDir() {
		return state{}, nil
	}
	return s, err
}

func (s state) absent() bool { return s.info == nil && s.target == "" }

// same reports whether two looks have found the same.
func (s state) same(o state) bool {
	return s.target == o.target && (s.info == nil && o.info == nil || s.info != nil && o.info != nil && sameFile(s.info, o.info))
}

func sameFile(a, b os.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && changedAt(a).Equal(changedAt(b)) && os.SameFile(a, b)
}

// movedHere reports whether the last change of a file was not one of its text. Writing sets the time of the text (mtime) and that of
// the file (ctime) to the same; renaming sets only the latter, and so does a tool that restores the time of the text after it has written all
// of it, such as "cp -p" or tar.
func movedHere(info os.FileInfo) bool { return changedAt(info).After(info.ModTime()) }

// isWhole reports whether a changed state of a file is no half of a change.
func (l *look) isWhole(name string, f seen, now state) bool {
	if now.absent() {
		for other := range l.paths {
			if known := l.next[other]; known != nil && other != name && os.SameFile(known.info, f.info) {
				return true // it was renamed to
			}
		}
	}
	return l.here.isSwapped(l.place) || now.info != nil && (movedHere(now.info) || now.target != "" && now.target != f.target)
}
