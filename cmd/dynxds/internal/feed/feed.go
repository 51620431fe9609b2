package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
	"github.com/dynxds/dynxds/internal/faults"
)

// Options are those of Open.
type Options struct {
	Store *store.Store
	// LastGood is a file for the documents that were published last, to start from if the store does not
	// answer; empty: there is none. Other replicas need one of their own.
	LastGood string
	// Reload has signals that trigger a reading of the whole store. It may be nil.
	Reload <-chan os.Signal
	// Pulse is the interval at which the store is asked for its revision, zero for a default.
	Pulse time.Duration
	Log   *slog.Logger
}

const (
	// defaultPulse is the default of Options.Pulse.
	defaultPulse = 2 * time.Second
	// patience is how many pulses a watch may be behind the store.
	patience = 3
	// reminder is the interval at which an outage of the store is logged again.
	reminder = 5 * time.Minute
	// retryAfter is the time between two attempts to open a watch, if a pulse is not shorter.
	retryAfter = 2 * time.Second
	// maxForeign bounds the logged keys that are not documents, maxKey the bytes of one.
	maxForeign, maxKey = 100, 200
	// saveEvery is how often the last-good file is written at most.
	saveEvery = 10 * time.Second
)

// Status is the state of a feed.
type Status struct {
	// Revision is that of the documents, Newest the one that the store had when it was asked last. They
	// may differ by changes of other keys.
	Revision, Newest int64
	// GoneSince is when the store ceased to answer, zero if it answers.
	GoneSince time.Time
}

// Feed follows the documents of a store. Status is safe for concurrent use; the other methods are for one
// goroutine.
type Feed struct {
	opts   Options
	log    *slog.Logger
	newest *documents
	good   lastGood
	// fromFile says that the documents are those of the last-good file: the store has not answered yet.
	fromFile bool
	// wake says that Wait is to return, though the documents are the same.
	wake bool
	// revision is that of the documents.
	revision int64
	// head is the newest known head of the store that the documents were read from.
	head store.Head
	// watcher is nil if there is none; then due says that it is time to open one, as it is some time after
	// the last attempt, by retryWatch. missed: it would miss changes, so that all documents are to be read before.
	watcher     *store.Watcher
	due, missed bool
	retryWatch  *time.Timer
	// late counts the pulses since the store had a revision that the watch has not reached: behind.
	late   int
	behind int64
	pulse  *time.Ticker
	// answers has the result of the pulse that is under way, if asking.
	answers chan answer
	asking  bool
	asks    sync.WaitGroup
	outage  outage
	// foreign are the logged keys that are not documents, shortened, and one more when there are too many.
	foreign map[string]bool
	saved   saved
	status  atomic.Pointer[Status]
}

// outage is the time in which the store does not answer: its begin, and when it was last logged.
type outage struct{ since, logged time.Time }

// answer is that of the store to a pulse.
type answer struct {
	// asked is what the store had to continue when it was asked.
	asked, head store.Head
	err         error
}

// Open reads the documents. If the store does not answer, they are those of the last-good file; without
// one, Open fails.
func Open(ctx context.Context, opts Options) (*Feed, error) {
	if opts.Pulse == 0 {
		opts.Pulse = defaultPulse
	}
	f := &Feed{
		opts: opts, log: opts.Log, newest: newDocuments(opts.Store.Dir()), due: true, missed: true,
		answers: make(chan answer, 1), foreign: map[string]bool{}, saved: saved{path: opts.LastGood},
	}
	file, broken := f.saved.load(opts.Store.Dir())
	if broken != nil && !errors.Is(broken, errBroken) {
		return nil, broken
	}
	f.good.take(file)
	if err := f.readAll(ctx); err != nil {
		switch {
		case broken != nil:
			return nil, fmt.Errorf("%w; %w", err, broken)
		case file == nil && opts.LastGood != "":
			return nil, fmt.Errorf("%w; cannot start without it, as --last-good %s does not exist yet", err, opts.LastGood)
		case file == nil:
			return nil, fmt.Errorf("%w; with --last-good this replica could have started without it", err)
		}
		f.noteOutage(err)
		f.newest.replace(&file.snapshot)
		f.revision, f.fromFile = file.snapshot.Revision, true
		f.log.Warn("starting from the last-good file", "file", opts.LastGood, "written", file.written, "revision", f.revision)
	} else if broken != nil {
		f.log.Error("the last-good file is damaged; it is written again, as the store answers", "error", broken)
	}
	f.pulse = time.NewTicker(opts.Pulse)
	f.retryWatch = time.NewTimer(retryAfter)
	f.wake = false // the caller reads
	f.report()
	return f, nil
}

// Close ends the watch, and writes the last-good file if that is due.
func (f *Feed) Close() {
	f.unwatch()
	f.pulse.Stop()
	f.retryWatch.Stop()
	f.asks.Wait()
	f.save(true)
}

// Read returns the content of the newest documents; the same pointers if nothing changed.
func (f *Feed) Read(context.Context) (*folder.Content, error) { return f.newest.read() }

// Status returns the state of the feed.
func (f *Feed) Status() Status { return *f.status.Load() }

func (f *Feed) report() {
	f.status.Store(&Status{Revision: f.revision, Newest: max(f.head.Revision, f.revision), GoneSince: f.outage.since})
}

// Wait waits until Read or Good may return something else, or until a time, if it is not zero. asked says that somebody
// asked to read the store, by Options.Reload. ok is false when the context has ended.
func (f *Feed) Wait(ctx context.Context, until time.Time) (asked, ok bool) {
	var timeout <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		// connect may take some time while the store does not answer, which Status must show meanwhile.
		select {
		case a := <-f.answers:
			f.evaluatePulse(a)
		default:
		}
		f.connect(ctx)
		f.report()
		if f.newest.stale || f.wake || asked {
			f.wake = false
			return asked, true
		}
		select {
		case <-ctx.Done():
			return false, false
		case <-timeout:
			return false, true
		case <-f.opts.Reload:
			asked = true
			f.readAllAgain()
		case r, ok := <-f.responses():
			f.applyResponse(ctx, r, ok)
		case a := <-f.answers:
			f.evaluatePulse(a)
		case <-f.retryWatch.C:
			f.due = true
		case <-f.pulse.C:
			f.sendPulse(ctx)
			f.save(false)
			f.retry(ctx)
		}
	}
}

// connect opens a watch if there is none and it is time to; if need be, it reads all documents before.
func (f *Feed) connect(ctx context.Context) {
	if f.watcher != nil || !f.due {
		return
	}
	f.due = false
	defer f.retryWatch.Reset(min(retryAfter, f.opts.Pulse)) // pulses may be rare
	if f.missed {
		if err := f.readAll(ctx); err != nil {
			f.noteOutage(err)
			return
		}
	}
	watcher, err := f.opts.Store.Watch(ctx, f.revision)
	if err != nil {
		// Reading shows whether the store as a whole does not answer.
		f.log.Debug("cannot open a watch; trying the next member of etcd", "error", err)
		return
	}
	f.watcher = watcher
}

func (f *Feed) readAll(ctx context.Context) error {
	snapshot, err := f.opts.Store.Load(ctx)
	if err != nil {
		return err
	}
	f.noteAnswer()
	f.newest.replace(snapshot, f.good.published, f.good.found)
	f.ignore(snapshot.Unknown)
	f.revision, f.head, f.missed, f.fromFile = snapshot.Revision, snapshot.Head, false, false
	f.setGood(ctx, snapshot.Good)
	return nil
}

// ignore names keys that are no documents, each once, up to a number of them.
func (f *Feed) ignore(keys []string) {
	for _, key := range keys {
		if len(f.foreign) > maxForeign {
			return
		}
		if key = faults.Shorten(key, maxKey); f.foreign[key] {
			continue
		}
		f.foreign[key] = true
		if len(f.foreign) > maxForeign {
			f.log.Warn("more keys of the store are not documents; ignoring them without further messages", "named", maxForeign)
			return
		}
		f.log.Warn("ignoring a key of the store that is not a document: names of documents end in .yaml, .yml or .json", "key", key)
	}
}

// responses are those of the watch, nil without one.
func (f *Feed) responses() clientv3.WatchChan {
	if f.watcher == nil {
		return nil
	}
	return f.watcher.Responses()
}

func (f *Feed) unwatch() {
	if f.watcher != nil {
		f.watcher.Close()
		f.watcher = nil
	}
}

// readAllAgain makes connect read all documents before it opens a watch.
func (f *Feed) readAllAgain() {
	f.unwatch()
	f.due, f.missed = true, true
	f.late, f.behind = 0, 0
}

// applyResponse applies the changes of a response of the watch; !ok is the end of the watch.
func (f *Feed) applyResponse(ctx context.Context, r clientv3.WatchResponse, ok bool) {
	if !ok {
		f.unwatch()
		return
	}
	batch, err := f.watcher.Batch(r)
	switch {
	case errors.Is(err, store.ErrCompacted):
		f.log.Info("etcd has compacted changes that were not seen; reading all documents", "revision", f.revision)
		f.readAllAgain()
	case err != nil:
		f.log.Warn("the watch has ended; reopening it", "error", err)
		f.unwatch()
	default:
		for name, d := range batch.Changes {
			var data []byte
			if d != nil {
				data = nonNil(d.Data)
			}
			f.newest.set(name, data, f.good.published, f.good.found)
		}
		f.ignore(batch.Unknown)
		f.revision = max(f.revision, batch.Revision)
		if batch.Good != nil {
			f.setGood(ctx, *batch.Good)
		}
	}
}

// sendPulse asks the store for its revision, unless the last pulse was not answered yet.
func (f *Feed) sendPulse(ctx context.Context) {
	if f.asking {
		return
	}
	f.asking = true
	watcher, revision, asked := f.watcher, f.revision, f.head
	asked.Revision = max(revision, f.head.Revision)
	f.asks.Go(func() {
		head, err := f.opts.Store.Head(ctx)
		if err == nil && head.Revision > revision && watcher != nil {
			_ = watcher.Ask() // without an answer the watch is behind
		}
		f.answers <- answer{asked, head, err}
	})
}

// evaluatePulse evaluates an answer to a pulse: whether the store answers, whether it is the same one, and
// whether the watch keeps up.
func (f *Feed) evaluatePulse(a answer) {
	f.asking = false
	if a.err != nil {
		f.noteOutage(a.err)
		return
	}
	wasOut := !f.outage.since.IsZero()
	f.noteAnswer()
	f.head = a.head
	switch {
	case !a.head.Continues(a.asked):
		f.log.Warn("the store was restored from a backup; reading all documents", "revision", a.head.Revision, "had", a.asked.Revision)
		f.readAllAgain()
	case wasOut:
		// It may have been restored, and have passed the revision since: a watch would miss the differences.
		f.readAllAgain()
	case f.revision >= f.behind:
		f.late, f.behind = 0, a.head.Revision
	default:
		if f.late++; f.late >= patience {
			f.log.Warn("the watch lags behind the store; reading all documents", "revision", f.revision, "newest", f.behind)
			f.readAllAgain()
		}
	}
}

// noteOutage notes that the store does not answer.
func (f *Feed) noteOutage(err error) {
	now := time.Now()
	if f.outage.since.IsZero() {
		f.outage.since = now
		f.report()
	}
	if now.Sub(f.outage.logged) < reminder {
		return
	}
	f.outage.logged = now
	f.log.Error("the store does not answer; serving the last known documents", "since", f.outage.since.UTC().Format(time.RFC3339),
		"revision", f.revision, "error", err)
}

// noteAnswer notes that the store answers.
func (f *Feed) noteAnswer() {
	if !f.outage.since.IsZero() {
		f.log.Info("the store answers again", "after", time.Since(f.outage.since).Round(time.Millisecond))
	}
	f.outage = outage{}
}
