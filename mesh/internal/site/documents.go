package site

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/store"
)

// Documents are where a control plane gets its content from: a folder (files), a store (store.Source), or the objects of an API
// server. They are for one goroutine, but for GoneSince.
type Documents interface {
	// Read returns the present content; if nothing changed, the same pointers.
	Read(context.Context) (*folder.Content, error)
	// Changed has a value when they may have changed. Again is when to read them again even so, zero for never.
	Changed() <-chan struct{}
	Again() time.Time
	Close()
	// GoneSince is when they could be read no more, zero if they can. It is safe for concurrent use.
	GoneSince() time.Time
}

// files are the documents of a folder.
type files struct {
	reader *folder.Reader
	log    *slog.Logger
	poll   time.Duration
	// looked says that this is not the first look; named are the files of which the log says that they change all
	// the time.
	looked bool
	named  map[string]bool
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

// Changed is nil: nobody tells of changes of files.
func (f *files) Changed() <-chan struct{} { return nil }

// Again is after the poll interval, or when it is time for the second look at a changed file.
func (f *files) Again() time.Time {
	next := time.Now().Add(f.poll)
	if at, ok := f.reader.Again(); ok && at.Before(next) {
		return at
	}
	return next
}

func (f *files) Close() {}

// GoneSince is zero: a folder that cannot be read is faulty.
func (f *files) GoneSince() time.Time { return time.Time{} }

// open fills Documents, Place and Dir of the options for a folder or a store.
func (opts *Options) open() error {
	switch log := opts.Serve.Log; {
	case opts.Documents != nil:
	case opts.Store != nil:
		s, err := store.Open(*opts.Store)
		if err != nil {
			return err
		}
		opts.Documents, opts.Place, opts.Dir = store.Follow(s, log), "store", s.Dir()
	default:
		opts.Documents, opts.Place = &files{reader: folder.New(opts.Dir), poll: cmp.Or(opts.Poll, DefaultPoll), log: log}, "folder"
	}
	return nil
}
