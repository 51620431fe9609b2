package feed

import (
	"bytes"
	"maps"
	"slices"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
	"github.com/dynxds/dynxds/internal/pmap"
)

// documents are the newest documents. They are for one goroutine.
type documents struct {
	dir    string
	joiner *folder.Joiner
	// byName are the documents, and digest is theirs.
	byName *pmap.Builder[*version]
	digest store.Digest
	// names are those of the documents, in order; nil if they are to be listed.
	names []string
	// content and err are the last result of read, stale if something changed since.
	content *folder.Content
	err     error
	stale   bool
}

// whole is a set of documents. It does not change.
type whole struct {
	documents pmap.Map[*version]
	digest    store.Digest
}

// version is a document. It does not change.
type version struct {
	data   []byte
	digest store.Digest
	file   *folder.File
}

func newDocuments(dir string) *documents {
	return &documents{dir: dir, joiner: folder.NewJoiner(dir), byName: pmap.Map[*version]{}.Edit(), stale: true}
}

// whole returns the present documents.
func (d *documents) whole() *whole { return &whole{d.byName.Map(), d.digest} }

// set sets a document; nil: it was deleted. If it becomes again what another whole has, it is that version, so that
// nothing is built for it.
func (d *documents) set(name string, data []byte, others ...*whole) {
	old, had := d.byName.Get(name)
	if had && data != nil && bytes.Equal(old.data, data) || !had && data == nil {
		return
	}
	if had {
		d.digest.Toggle(old.digest)
	}
	if data == nil {
		d.byName.Delete(name)
	} else {
		v := versionOf(d.dir, name, data, others...)
		d.digest.Toggle(v.digest)
		d.byName.Set(name, v)
	}
	d.stale = true
	if !had || data == nil {
		d.names = nil
	}
}

// nonNil returns the text of a document, which may be empty.
func nonNil(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}

// versionOf returns that of one of some wholes, if it has the text, or else a new one.
func versionOf(dir, name string, data []byte, wholes ...*whole) *version {
	for _, w := range wholes {
		if w == nil {
			continue
		}
		if v, ok := w.documents.Get(name); ok && bytes.Equal(v.data, data) {
			return v
		}
	}
	return &version{data: data, digest: store.DigestOf(name, data), file: folder.Parse(dir+"/"+name, data)}
}

// wholeOf returns a set of documents, with the versions of other wholes where these have the same text.
func wholeOf(dir string, texts map[string][]byte, others ...*whole) *whole {
	w := &whole{}
	edit := w.documents.Edit()
	for name, data := range texts {
		v := versionOf(dir, name, data, others...)
		w.digest.Toggle(v.digest)
		edit.Set(name, v)
	}
	w.documents = edit.Map()
	return w
}

// texts returns the documents by name.
func (w *whole) texts() map[string]string {
	texts := make(map[string]string, w.documents.Len())
	for name, v := range w.documents.All {
		texts[name] = string(v.data)
	}
	return texts
}

// names returns the names of the documents in order.
func (w *whole) names() []string {
	names := make([]string, 0, w.documents.Len())
	for name := range w.documents.All {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// join returns the content of the documents.
func (w *whole) join(joiner *folder.Joiner, names []string) (*folder.Content, error) {
	files := make([]*folder.File, 0, len(names))
	for _, name := range names {
		v, _ := w.documents.Get(name) // which is there
		files = append(files, v.file)
	}
	return joiner.Join(files)
}

// replace sets all documents to those of a snapshot.
func (d *documents) replace(snapshot *store.Snapshot, others ...*whole) {
	for _, name := range slices.Sorted(maps.Keys(snapshot.Documents)) {
		d.set(name, nonNil(snapshot.Documents[name].Data), others...)
	}
	for name := range d.byName.Map().All {
		if _, there := snapshot.Documents[name]; !there {
			d.set(name, nil)
		}
	}
}

// read returns the content of the documents; the same pointers if nothing changed.
func (d *documents) read() (*folder.Content, error) {
	if d.stale {
		w := d.whole()
		if d.names == nil {
			d.names = w.names()
		}
		d.stale = false
		d.content, d.err = w.join(d.joiner, d.names)
	}
	return d.content, d.err
}
