package site

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/feed"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
	"github.com/dynxds/dynxds/internal/planestate"
)

// Unstored are the methods of Documents by which a store tells replicas of each other and of the time before. Other documents
// embed it.
type Unstored struct {
	// Meant is what Confirmed returns, and Program is what to restart to serve nothing.
	Meant   bool
	Program string
}

// Good is nil: the last publication stays.
func (Unstored) Good(context.Context) *folder.Content { return nil }

// Confirmed returns Meant.
func (u Unstored) Confirmed() bool { return u.Meant }

// WereThere is false: nothing is known of the time before.
func (Unstored) WereThere() bool { return false }

// ToServeNothing says how.
func (u Unstored) ToServeNothing() string { return "restart " + u.Program }

// Published does nothing.
func (Unstored) Published(context.Context, *folder.Content) {}

// files are the documents of a folder.
type files struct {
	Unstored
	reader *folder.Reader
	poll   *time.Ticker
	reload <-chan os.Signal
	log    *slog.Logger
	// looked says that this is not the first look; named are the files of which the log says that they change all
	// the time.
	looked bool
	named  map[string]bool
}

func newFiles(dir string, poll time.Duration, reload <-chan os.Signal, log *slog.Logger) *files {
	return &files{Unstored: Unstored{Program: "the server"}, reader: folder.New(dir), poll: time.NewTicker(poll), reload: reload, log: log}
}

// Read waits for files that are being written only at the first look: without them there is nothing to serve.
func (f *files) Read(ctx context.Context) (*folder.Content, error) {
	if !f.looked {
		f.looked = true
		return f.reader.Settled(ctx)
	}
	content, err := f.reader.Read()
	busy := make(map[string]bool)
	for _, name := range f.reader.Busy() {
		if busy[name] = true; !f.named[name] {
			f.log.Warn("a file never stops changing; its former text stays in use. Write a temporary file and rename it", "file", name)
		}
	}
	f.named = busy
	return content, err
}

// Wait also ends when it is time for the second look at a changed file.
func (f *files) Wait(ctx context.Context, until time.Time) (asked, ok bool) {
	if at, ok := f.reader.Again(); ok && (until.IsZero() || at.Before(until)) {
		until = at
	}
	var timeout <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-ctx.Done():
		return false, false
	case <-f.poll.C:
	case <-timeout:
	case <-f.reload:
		return true, true
	}
	return false, true
}

func (f *files) Close() { f.poll.Stop() }

// GoneSince is zero: a folder that cannot be read is faulty.
func (f *files) GoneSince() time.Time { return time.Time{} }

// open opens the documents, if they are not in a folder.
func (r *reloader) open(ctx context.Context, opts Options) (err error) {
	if opts.Open != nil {
		if r.documents, err = opts.Open(ctx, r.log); err != nil {
			return err
		}
		r.place, r.dir, r.frequent = opts.Place, opts.Dir, true
		r.state = planestate.NewKeeper(r.place, r.dir, r.documents.GoneSince)
		return nil
	}
	if opts.Store == nil {
		return nil
	}
	s, err := store.Open(opts.Store.Options)
	if err != nil {
		return err
	}
	followed, err := feed.Open(ctx, feed.Options{Store: s, LastGood: opts.Store.LastGood, Pulse: opts.Store.Pulse, Reload: opts.Reload, Log: r.log})
	if err != nil {
		s.Close()
		return err
	}
	r.place, r.dir, r.documents = "store", s.Dir(), &stored{followed, s}
	r.state = planestate.NewKeeper(r.place, r.dir, r.documents.GoneSince)
	return nil
}

// stored are the documents of a store.
type stored struct {
	*feed.Feed
	store *store.Store
}

func (s *stored) ToServeNothing() string {
	return "stop all replicas, delete the key " + s.store.GoodKey() + " and the files of --last-good, and start them"
}

func (s *stored) GoneSince() time.Time { return s.Status().GoneSince }

func (s *stored) Close() {
	s.Feed.Close()
	s.store.Close()
}
