package store

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/mesh/internal/folder"
)

const (
	// poll is the interval at which a Source asks etcd for its revision: so late a change arrives at the latest that the
	// watch does not report.
	poll = 2 * time.Second
	// watchAgain is the pause before a watch that has ended is opened again.
	watchAgain = time.Second
	// maxKey bounds a logged key, in bytes.
	maxKey = 200
)

// Source follows the documents of a store. It is site.Documents: GoneSince is safe for concurrent use, the other methods
// are for one goroutine.
type Source struct {
	store *Store
	log   *slog.Logger
	// changed has a value when the watch has reported something.
	changed chan struct{}
	// stop ends the watch, and watching waits for its end.
	stop     context.CancelFunc
	watching sync.WaitGroup

	// head is that of the last reading, zero before the first one, and files are what it found.
	head  head
	files map[string]*file
	// content and err are the last result of Read, stale if files have changed since.
	content *folder.Content
	err     error
	stale   bool
	gone    atomic.Pointer[time.Time]
}

// file is a key below docs as it was read.
type file struct {
	text   string
	parsed *folder.File // nil for a key that is no document
}

// Follow watches the documents until Close. If etcd does not answer, Read has the error until it does.
func Follow(s *Store, log *slog.Logger) *Source {
	f := &Source{store: s, log: log, changed: make(chan struct{}, 1), files: map[string]*file{}}
	var ctx context.Context
	ctx, f.stop = context.WithCancel(context.Background())
	f.watching.Go(func() { f.watch(ctx) })
	return f
}

// Changed has a value when Read may return something else.
func (f *Source) Changed() <-chan struct{} { return f.changed }

// Again is when to ask etcd for its revision.
func (f *Source) Again() time.Time { return time.Now().Add(poll) }

// Close ends the watch, and closes the store.
func (f *Source) Close() {
	f.stop()
	f.watching.Wait()
	f.store.Close()
}

// GoneSince is when etcd ceased to answer, zero if it answers.
func (f *Source) GoneSince() time.Time {
	if since := f.gone.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

// Read returns the content of the documents; the same pointers if nothing has changed. A store without documents is
// an error: nobody means to serve nothing, and a prefix may be wrong, or not written yet.
func (f *Source) Read(ctx context.Context) (*folder.Content, error) {
	f.note(ctx, f.update(ctx))
	if f.stale {
		f.stale = false
		f.content, f.err = f.join()
	}
	return f.content, f.err
}

func (f *Source) join() (*folder.Content, error) {
	var files []*folder.File
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		if parsed := f.files[name].parsed; parsed != nil {
			files = append(files, parsed)
		}
	}
	content, err := folder.Join(f.store.Dir(), files)
	if err == nil && content.Documents() == 0 {
		return nil, fmt.Errorf("the store %s has no documents; \"dynxds apply\" writes some", f.store.Dir())
	}
	return content, err
}

// note notes whether etcd answers, by the error of a reading.
func (f *Source) note(ctx context.Context, err error) {
	since := f.gone.Load()
	switch {
	case ctx.Err() != nil:
	case err == nil && since != nil:
		f.log.Info("the store answers again", "after", time.Since(*since).Round(time.Millisecond))
		f.gone.Store(nil)
	case err != nil && since == nil:
		now := time.Now()
		f.gone.Store(&now)
		served := "serving the last known documents"
		if f.head.revision == 0 {
			served, f.err = "there is nothing to serve yet", err
		}
		f.log.Error("the store does not answer; "+served, "revision", f.head.revision, "error", err)
	}
}

// update takes in what has changed since the last reading, or all documents, if some were deleted, or if etcd may have been
// restored from a backup.
func (f *Source) update(ctx context.Context) error {
	if now, err := f.store.head(ctx); err != nil || now == f.head {
		return err
	}
	after := f.head.revision
	if f.gone.Load() != nil {
		after = 0
	}
	response, err := f.store.changes(ctx, after)
	if err == nil && after > 0 && !f.completes(response) {
		after = 0
		response, err = f.store.changes(ctx, after)
	}
	if err != nil {
		return err
	}
	now := headOf(response.Header)
	if f.head.revision == 0 {
		f.stale = true
	} else if !now.continues(f.head) {
		f.log.Warn("etcd was restored from a backup; all documents were read", "revision", now.revision, "had", f.head.revision)
	}
	f.take(response, after == 0)
	f.head = now
	return nil
}

// completes reports whether the files, with what has changed since they were read, are what the store has.
func (f *Source) completes(changes *clientv3.GetResponse) bool {
	files := len(f.files)
	for _, kv := range changes.Kvs {
		if name, _ := f.store.name(kv.Key); f.files[name] == nil {
			files++
		}
	}
	return headOf(changes.Header).continues(f.head) && files == int(changes.Count)
}

// take takes in the keys of a response, which has all or only those that have changed. Files with the same text are the same.
func (f *Source) take(response *clientv3.GetResponse, all bool) {
	now := f.files
	if all {
		now = make(map[string]*file, len(response.Kvs))
	}
	for _, kv := range response.Kvs {
		name, isDocument := f.store.name(kv.Key)
		switch old := f.files[name]; {
		case old != nil && old.text == string(kv.Value):
			now[name] = old
			continue
		case old == nil && !isDocument:
			f.log.Warn("ignoring a key of the store that is not a document: names of documents end in .yaml, .yml or .json",
				"key", faults.Shorten(string(kv.Key), maxKey))
		}
		now[name] = &file{text: string(kv.Value)}
		if isDocument {
			now[name].parsed = folder.Parse(f.store.Dir()+"/"+name, kv.Value)
			f.stale = true
		}
	}
	if all {
		for name, old := range f.files {
			f.stale = f.stale || now[name] == nil && old.parsed != nil
		}
	}
	f.files = now
}

// watch asks for a reading whenever a document may have changed, until the context ends. What it misses, as while a member
// of etcd does not answer, the next poll finds.
func (f *Source) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if client, err := f.store.connect(); err == nil {
			for range client.Watch(clientv3.WithRequireLeader(ctx), f.store.docs(), clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
				select {
				case f.changed <- struct{}{}:
				default:
				}
			}
		}
		_ = retries.Wait(ctx, watchAgain) // whose error ends the loop
	}
}
