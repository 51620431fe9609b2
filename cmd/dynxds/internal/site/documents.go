package site

import (
	"context"
	"os"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/feed"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
)

// files are the documents of a folder.
type files struct {
	reader *folder.Reader
	poll   *time.Ticker
	hurry  <-chan os.Signal
}

func newFiles(dir string, poll time.Duration, hurry <-chan os.Signal) *files {
	return &files{reader: folder.New(dir), poll: time.NewTicker(poll), hurry: hurry}
}

func (f *files) Read(context.Context) (*folder.Content, error) { return f.reader.Read() }

// Without is false: the author of a folder repairs the faulty file.
func (f *files) Without(context.Context, error) bool { return false }

func (f *files) Published() {}

func (f *files) Wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-f.poll.C:
	case <-f.hurry:
	}
	return true
}

func (f *files) Close() { f.poll.Stop() }

func (f *files) Held() int { return 0 }

// GoneSince is zero: a folder that cannot be read is faulty.
func (f *files) GoneSince() time.Time { return time.Time{} }

// open opens the store, if the documents are in one.
func (r *reloader) open(ctx context.Context, opts Options) error {
	if opts.Store == nil {
		return nil
	}
	s, err := store.Open(opts.Store.Options)
	if err != nil {
		return err
	}
	followed, err := feed.Open(ctx, feed.Options{Store: s, LastGood: opts.Store.LastGood, Hurry: opts.Hurry, Log: r.log})
	if err != nil {
		s.Close()
		return err
	}
	r.place, r.dir, r.documents = "store", s.Dir(), &stored{followed, s}
	return nil
}

// stored are the documents of a store.
type stored struct {
	*feed.Feed
	store *store.Store
}

func (s *stored) Held() int { return len(s.Status().Refused) }

func (s *stored) GoneSince() time.Time { return s.Status().GoneSince }

func (s *stored) Close() {
	s.Feed.Close()
	s.store.Close()
}
