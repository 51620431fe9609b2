package site

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
	"github.com/dynxds/dynxds/mesh/internal/store"
)

// files are the documents of a folder.
type files struct {
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
	return &files{reader: folder.New(dir), poll: time.NewTicker(poll), reload: reload, log: log}
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
func (f *files) Wait(ctx context.Context, until time.Time) (ok bool) {
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
		return false
	case <-f.poll.C:
	case <-timeout:
	case <-f.reload:
	}
	return true
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
		r.place, r.dir, r.live = opts.Place, opts.Dir, true
		r.state = planestate.NewKeeper(r.place, r.dir, r.documents.GoneSince)
		return nil
	}
	if opts.Store == nil {
		return nil
	}
	s, err := store.Open(*opts.Store)
	if err != nil {
		return err
	}
	r.place, r.dir, r.documents = "store", s.Dir(), &stored{store.Follow(ctx, s, opts.Reload, r.log), s}
	r.state = planestate.NewKeeper(r.place, r.dir, r.documents.GoneSince)
	return nil
}

// stored are the documents of a store.
type stored struct {
	*store.Source
	store *store.Store
}

func (s *stored) Close() {
	s.Source.Close()
	s.store.Close()
}
