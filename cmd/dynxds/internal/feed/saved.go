package feed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
)

// saved is the last-good file.
type saved struct {
	path string // empty: there is none
	due  bool   // there is something to write
	// failed says that the last attempt to write it failed, which is in the log.
	failed bool
	at     time.Time
}

// savedFile is its form.
type savedFile struct {
	// Store is the Dir of the store.
	Store     string                   `json:"store"`
	Revision  int64                    `json:"revision"`
	Documents map[string]savedDocument `json:"documents"`
}

type savedDocument struct {
	Text string `json:"text"`
}

// lastGoodFile is what a last-good file has.
type lastGoodFile struct {
	snapshot store.Snapshot
	written  time.Time
}

// errBroken is the error of a last-good file that cannot be read as one.
var errBroken = errors.New("it is not a last-good file")

// load reads the file of a store. It returns nil if there is none yet. The error is errBroken if the file is
// not one, which does not matter while the store answers.
func (s *saved) load(dir string) (*lastGoodFile, error) {
	if s.path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		// It is written as soon as there is something to write; that it can be should be known now.
		probe, err := os.CreateTemp(filepath.Dir(s.path), ".last-good-*")
		if err != nil {
			return nil, fmt.Errorf("--last-good: %w", err)
		}
		probe.Close()
		return nil, os.Remove(probe.Name())
	}
	if err != nil {
		return nil, fmt.Errorf("--last-good: %w", err)
	}
	info, err := os.Stat(s.path)
	if err != nil {
		return nil, fmt.Errorf("--last-good: %w", err)
	}
	var file savedFile
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("--last-good %s: %w: %w; delete it", s.path, errBroken, err)
	}
	if file.Store != dir {
		return nil, fmt.Errorf("--last-good: %s is of the store %s, not of %s; use another file", s.path, file.Store, dir)
	}
	good := &lastGoodFile{snapshot: store.Snapshot{Head: store.Head{Revision: file.Revision}, Documents: map[string]store.Document{}}, written: info.ModTime()}
	for name, d := range file.Documents {
		good.snapshot.Documents[name] = store.Document{Data: []byte(d.Text)}
	}
	return good, nil
}

// take takes in the last-good file.
func (g *lastGood) take(file *lastGoodFile) {
	if file == nil {
		return
	}
	g.file, g.fileDigest = make(map[string][]byte), file.snapshot.Digest()
	for name, d := range file.snapshot.Documents {
		g.file[name] = d.Data
	}
}

// save writes the last-good file if that is due, and, unless the feed ends, it was not written just now.
func (f *Feed) save(last bool) {
	s := &f.saved
	if s.path == "" || !s.due || !last && time.Since(s.at) < saveEvery {
		return
	}
	s.at = time.Now()
	texts := f.good.published.texts()
	file := savedFile{Store: f.newest.dir, Revision: f.revision, Documents: make(map[string]savedDocument, len(texts))}
	for name, text := range texts {
		file.Documents[name] = savedDocument{text}
	}
	err := file.write(s.path)
	if s.due = err != nil; s.due && !s.failed {
		f.log.Error("cannot write the last-good file; retrying", "file", s.path, "error", err)
	}
	s.failed = err != nil
}

// write replaces the file at once, so that one that ends in its midst is never read.
func (f *savedFile) write(path string) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(path), ".last-good-*") // only its owner may read it
	if err != nil {
		return err
	}
	defer os.Remove(next.Name()) // there is none after the renaming
	_, err = next.Write(text)
	if err == nil {
		err = next.Sync() // else its name may survive a loss of power without its text
	}
	if err := errors.Join(err, next.Close()); err != nil {
		return err
	}
	return os.Rename(next.Name(), path)
}
