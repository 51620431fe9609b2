package store

import (
	"context"
	"fmt"
	"log/slog"
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

	// snapshot is what the last reading found, with the revision zero before there was one.
	snapshot *Snapshot
	parser   folder.Parser
	// content and err are the last result of Read. empty is the error of a store without documents.
	content    *folder.Content
	err, empty error
	gone       atomic.Pointer[time.Time]
}

// Follow watches the documents until Close. If etcd does not answer, Read has the error until it does.
func Follow(s *Store, log *slog.Logger) *Source {
	f := &Source{store: s, log: log, changed: make(chan struct{}, 1), snapshot: &Snapshot{}, parser: folder.Parser{Dir: s.Dir()}}
	f.empty = fmt.Errorf("the store %s has no documents; \"dynxds apply\" writes some", s.Dir())
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
	before := f.snapshot
	if f.gone.Load() != nil {
		before = &Snapshot{head: before.head} // if anything has changed, all is read: etcd may have been restored from a backup
	}
	after, err := f.store.since(ctx, before)
	f.note(ctx, err)
	if err == nil && after != before {
		f.take(after)
	}
	return f.content, f.err
}

// take takes in a snapshot.
func (f *Source) take(next *Snapshot) {
	before := f.snapshot
	if before.head.revision > 0 && !next.head.continues(before.head) {
		f.log.Warn("etcd was restored from a backup; all documents were read", "revision", next.head.revision, "had", before.head.revision)
	}
	for name := range next.others {
		if !before.others[name] {
			f.log.Warn("ignoring a key of the store that is not a document: names of documents end in .yaml, .yml or .json",
				"key", faults.Shorten(f.store.docs()+name, maxKey))
		}
	}
	f.snapshot = next
	f.content, f.err = f.parser.Parse(next.Documents)
	if f.err == nil && f.content.Documents() == 0 {
		f.content, f.err = nil, f.empty
	}
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
		if f.snapshot.head.revision == 0 {
			served, f.err = "there is nothing to serve yet", err
		}
		f.log.Error("the store does not answer; "+served, "revision", f.snapshot.head.revision, "error", err)
	}
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
