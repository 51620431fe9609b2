package feed

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
	"github.com/dynxds/dynxds/internal/document"
)

// shelf has the documents. It is for one goroutine.
type shelf struct {
	dir    string
	joiner *folder.Joiner
	log    *slog.Logger
	// older returns a document as it was before a revision, or nil.
	older   func(ctx context.Context, name string, revision int64) *store.Document
	entries map[string]*entry
	// names are those of entries, in order; nil if they are to be listed.
	names []string
	// pending are the entries whose newest version is not the last good one.
	pending map[string]*entry
	// blamed are the entries that were held since the last change because of other documents, in order: one
	// of them may be right now that another one is held. retrying: they are tried one by one.
	blamed   []*entry
	retrying bool
	// content and err are the last result of read, stale if something changed since.
	content *folder.Content
	err     error
	stale   bool
}

// entry is a document.
type entry struct {
	name string
	// newest is what the store has, or the revision that deleted the document; good what was published
	// last, nil for nothing.
	newest, good *version
	// held: good counts in the place of newest, which has this fault.
	held  bool
	fault string
	// guessed: good is from the history of the store, and was not published here. searched is the revision
	// before which it was looked for, zero for not at all.
	guessed  bool
	searched int64
	// logged is the revision of the newest version whose fault was logged.
	logged int64
}

// version is a document at a revision. Without a file it was deleted.
type version struct {
	store.Document
	file *folder.File
}

func newShelf(dir string, log *slog.Logger) *shelf {
	return &shelf{
		dir: dir, joiner: folder.NewJoiner(dir), log: log,
		entries: map[string]*entry{}, pending: map[string]*entry{}, stale: true,
	}
}

// set sets the newest version of a document; nil: it was deleted at the revision.
func (s *shelf) set(name string, d *store.Document, revision int64) {
	e := s.entries[name]
	switch {
	case e == nil && d == nil:
		return
	case e == nil:
		e = &entry{name: name}
		s.entries[name], s.names = e, nil
	case d == nil && e.newest.file == nil:
		return
	case d != nil && e.newest.file != nil && bytes.Equal(d.Data, e.newest.Data):
		e.newest.Document = *d // written again as it was
		return
	}
	switch {
	case d == nil:
		e.newest = &version{Document: store.Document{ModRevision: revision}}
	case e.good != nil && e.good.file != nil && bytes.Equal(d.Data, e.good.Data):
		e.newest = &version{*d, e.good.file}
	default:
		e.newest = s.parse(name, d)
	}
	e.searched = 0
	s.pending[name] = e
	s.release()
}

// release lets all held documents count again: a change may have repaired them.
func (s *shelf) release() {
	s.stale = true
	s.blamed, s.retrying = nil, false
	for _, e := range s.pending {
		e.held = false
	}
}

func (s *shelf) parse(name string, d *store.Document) *version {
	return &version{Document: *d, file: folder.Parse(s.dir+"/"+name, d.Data)}
}

// replace sets all documents to those of a revision.
func (s *shelf) replace(snapshot *store.Snapshot) {
	for name, d := range snapshot.Documents {
		s.set(name, &d, d.ModRevision)
	}
	for name := range s.entries {
		if _, there := snapshot.Documents[name]; !there {
			s.set(name, nil, snapshot.Revision)
		}
	}
}

// read returns the content of the documents; the same pointers if nothing changed.
func (s *shelf) read(ctx context.Context) (*folder.Content, error) {
	if !s.stale {
		return s.content, s.err
	}
	s.stale = false
	for _, e := range s.pending {
		if e.held || e.newest.file == nil {
			continue
		}
		if faults, ok := errors.AsType[*document.Faults](e.newest.file.Err()); ok {
			s.hold(ctx, e, faults.List[0])
		}
	}
	if s.names == nil {
		s.names = slices.Sorted(maps.Keys(s.entries))
	}
	files := make([]*folder.File, 0, len(s.names))
	for _, name := range s.names {
		if v := s.entries[name].current(); v != nil && v.file != nil {
			files = append(files, v.file)
		}
	}
	s.content, s.err = s.joiner.Join(files)
	return s.content, s.err
}

// current returns the version that counts, nil for none.
func (e *entry) current() *version {
	if e.held {
		return e.good
	}
	return e.newest
}

// without puts the last good versions in the place of documents that an error of the content is about. It
// returns false if there are none to blame.
func (s *shelf) without(ctx context.Context, err error) bool {
	faults, ok := errors.AsType[*document.Faults](err)
	if !ok || len(faults.List) == 0 {
		return false
	}
	blamed := make(map[*entry]document.Fault)
	for _, fault := range faults.List {
		if e := s.latest(s.named(fault.File), s.named(fault.Other)); e != nil {
			blamed[e] = fault
		}
	}
	if len(blamed) == 0 {
		e := s.latest(slices.Collect(maps.Values(s.pending))...)
		if e == nil {
			return false
		}
		blamed[e] = faults.List[0]
	}
	latestFirst := func(a, b *entry) int {
		return cmp.Or(cmp.Compare(b.newest.ModRevision, a.newest.ModRevision), strings.Compare(a.name, b.name))
	}
	for _, e := range slices.SortedFunc(maps.Keys(blamed), latestFirst) {
		if !s.retrying && !e.held {
			s.blamed = append(s.blamed, e)
		}
		s.hold(ctx, e, blamed[e])
	}
	s.stale = true
	return true
}

// named returns the document of a file that a fault names, or nil.
func (s *shelf) named(file string) *entry {
	if path.Dir(file) != s.dir {
		return nil
	}
	return s.pending[path.Base(file)]
}

// latest returns the candidate that was changed last, without those that nothing can replace.
func (s *shelf) latest(candidates ...*entry) *entry {
	var latest *entry
	for _, e := range candidates {
		if e == nil || e.held && (!e.guessed || e.good == nil) {
			continue
		}
		if latest == nil || e.current().ModRevision > latest.current().ModRevision ||
			e.current().ModRevision == latest.current().ModRevision && strings.Compare(e.name, latest.name) > 0 {
			latest = e
		}
	}
	return latest
}

// hold puts the last good version of a document in the place of the one that counts.
func (s *shelf) hold(ctx context.Context, e *entry, fault document.Fault) {
	faulty := e.current()
	if !e.held {
		e.held, e.fault = true, fault.String()
	}
	if (e.good == nil || faulty == e.good) && (e.searched == 0 || faulty.ModRevision < e.searched) {
		e.good, e.guessed, e.searched = s.before(ctx, e, faulty.ModRevision), true, faulty.ModRevision
	}
}

// logRefused logs that a document is refused, once for each version.
func (s *shelf) logRefused(e *entry) {
	if e.logged == e.newest.ModRevision {
		return
	}
	e.logged = e.newest.ModRevision
	attrs := []any{"document", e.name, "revision", e.newest.ModRevision, "fault", e.fault}
	switch {
	case e.newest.file == nil:
		s.log.Error("without a document that was deleted others are faulty; it stays", attrs...)
	case e.good == nil:
		s.log.Error("a document is faulty; it is left out", attrs...)
	default:
		s.log.Error("a document is faulty; its last good text stays", append(attrs, "good revision", e.good.ModRevision)...)
	}
}

// maxOlder bounds the versions of a document that are looked at for a good one.
const maxOlder = 10

// before returns the last version of a document before a revision that is not faulty by itself, nil if
// there is none.
func (s *shelf) before(ctx context.Context, e *entry, revision int64) *version {
	if revision == e.newest.CreateRevision || s.older == nil {
		return nil
	}
	for range maxOlder {
		d := s.older(ctx, e.name, revision)
		if d == nil {
			return nil
		}
		if v := s.parse(e.name, d); v.file.Err() == nil {
			return v
		}
		revision = d.ModRevision
	}
	return nil
}

// published makes the versions that count the last good ones. Documents that were held together are then
// tried again one by one, and what remains is logged.
func (s *shelf) published() {
	retry := s.retry()
	for name, e := range s.pending {
		e.guessed = false
		if e.held || e == retry {
			if e.held && retry == nil {
				s.logRefused(e)
			}
			continue
		}
		if e.logged != 0 {
			s.log.Info("a document is right again", "document", name, "revision", e.newest.ModRevision)
			e.logged = 0
		}
		e.good = e.newest
		delete(s.pending, name)
		if e.newest.file == nil {
			delete(s.entries, name)
			s.names = nil
		}
	}
}

// retry lets the next document that was held together with others count again, if there is one.
func (s *shelf) retry() *entry {
	if !s.retrying && len(s.blamed) < 2 {
		s.blamed = nil
	}
	if len(s.blamed) == 0 {
		s.retrying = false
		return nil
	}
	e := s.blamed[0]
	s.blamed, s.retrying = s.blamed[1:], true
	e.held, s.stale = false, true
	return e
}
