package feed

import (
	"context"
	"errors"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/store"
)

// lastGood is what a feed knows of the last good documents.
type lastGood struct {
	// key is what the store has.
	key store.Good
	// published are the documents that are in use, nil before the first ones.
	published *whole
	// found are the last good documents, with their content, if they were asked for.
	found   *whole
	content *folder.Content
	// file has the texts of the last-good file, and fileDigest theirs; nil if there is none, or it is not needed any more.
	file       map[string][]byte
	fileDigest store.Digest
	// lost is when the documents of key were first found to be nowhere, zero if they are known.
	lost time.Time
	// due says that something is to be tried again at the next pulse.
	due bool
	// failed says that the last attempt to write into the store failed, which is in the log.
	failed bool
}

// Confirmed reports whether the newest documents are known to be good, and meant: "dynxds apply" has written them, or
// another replica has published them.
func (f *Feed) Confirmed() bool { return f.isGood(f.newest.digest) }

func (f *Feed) isGood(d store.Digest) bool {
	return f.good.key.ModRevision > 0 && f.good.key.Digest == d
}

// WereThere reports whether the store had documents that were good; they may be gone.
func (f *Feed) WereThere() bool {
	return f.good.key.ModRevision > 0 && f.good.key.Digest != store.Digest{}
}

// Good returns the last good documents, to be served while the newest ones are not. nil: they are in use, or
// are the newest ones, or are not known. It sees to it that the store has their texts.
func (f *Feed) Good(ctx context.Context) *folder.Content {
	g := &f.good
	if f.fromFile || f.Confirmed() {
		return nil
	}
	w := f.find(ctx)
	if w == nil || w.digest == f.newest.digest {
		return nil
	}
	if g.published != nil && g.published.digest == w.digest {
		f.keepTexts(ctx, w)
		return nil
	}
	if g.found == nil || g.found.digest != w.digest {
		content, err := w.join(folder.NewJoiner(f.newest.dir), w.names())
		if err != nil {
			f.log.Error("the last good documents of the store are faulty for this replica; is it an older version of dynxds?", "error", err)
			return nil
		}
		g.found, g.content = w, content
	}
	f.keepTexts(ctx, w)
	return g.content
}

// find returns the last good documents, nil if they are not known.
func (f *Feed) find(ctx context.Context) *whole {
	g := &f.good
	if g.key.ModRevision == 0 && g.published != nil {
		return g.published
	}
	for _, w := range []*whole{g.published, g.found} {
		if w != nil && w.digest == g.key.Digest {
			g.lost = time.Time{}
			return w
		}
	}
	if g.file != nil && (g.fileDigest == g.key.Digest || g.key.ModRevision == 0) {
		return wholeOf(f.newest.dir, g.file, f.newest.whole())
	}
	if g.key.ModRevision == 0 {
		return nil
	}
	w, err := f.fetch(ctx)
	switch {
	case w != nil:
		g.lost = time.Time{}
	case err != nil:
		g.due = true
		f.log.Warn("cannot read the last good documents; retrying", "error", err)
	case g.lost.IsZero():
		g.lost, g.due = time.Now(), true
		f.log.Warn("the store has lost the last good documents; waiting for a replica that has them", "digest", g.key.Digest)
	case g.published == nil || time.Since(g.lost) < patience*f.opts.Pulse:
		g.due = true
	default:
		// No replica that has them brings them back.
		f.log.Warn("no replica has the last good documents; the documents that this replica serves replace them", "digest", g.key.Digest)
		return g.published
	}
	return w
}

// fetch reads the last good documents, from their key or else from the revision that had them. It returns nil if
// neither has them.
func (f *Feed) fetch(ctx context.Context) (*whole, error) {
	g := &f.good
	texts := make(map[string][]byte)
	if g.key.HasDocuments() {
		documents, err := g.key.Documents()
		if err != nil {
			f.log.Error("the last good documents of the store are unusable", "error", err)
		}
		for name, text := range documents {
			texts[name] = []byte(text)
		}
	} else {
		snapshot, err := f.opts.Store.LoadAt(ctx, g.key.Revision())
		if errors.Is(err, store.ErrCompacted) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		for name, d := range snapshot.Documents {
			texts[name] = d.Data
		}
	}
	w := wholeOf(f.newest.dir, texts, f.newest.whole(), g.published)
	if w.digest != g.key.Digest {
		return nil, nil
	}
	return w, nil
}

// Published says that a content is in use: that of the newest documents, or of the last good ones.
func (f *Feed) Published(ctx context.Context, content *folder.Content) {
	g := &f.good
	if content == f.newest.content {
		g.published, g.found, g.content = f.newest.whole(), nil, nil
	} else {
		g.published = g.found
	}
	if !f.fromFile {
		g.file = nil
	}
	f.saved.due = true
	f.keepNewest(ctx)
	f.report()
}

// servesNewest reports whether the newest documents are in use.
func (f *Feed) servesNewest() bool {
	return f.good.published != nil && f.good.published.digest == f.newest.digest
}

// keepNewest writes into the store that the newest documents are good, once they are in use.
func (f *Feed) keepNewest(ctx context.Context) {
	nothing := f.good.key.ModRevision == 0 && f.newest.digest == store.Digest{}
	if f.fromFile || nothing || !f.servesNewest() || f.Confirmed() {
		return
	}
	f.keep(ctx, store.Good{Digest: f.newest.digest, At: f.revision})
}

// keepTexts writes the texts of the last good documents into the store, if it does not have them.
func (f *Feed) keepTexts(ctx context.Context, w *whole) {
	key := &f.good.key
	if key.HasDocuments() && key.Digest == w.digest {
		return
	}
	next, err := store.Good{Digest: w.digest, At: key.Revision()}.With(w.texts())
	if err != nil {
		f.log.Error("cannot pack the last good documents", "error", err)
		return
	}
	f.keep(ctx, next)
}

// keep replaces what the store has, unless another replica has done so since it was read: what that one wrote arrives
// over the watch.
func (f *Feed) keep(ctx context.Context, next store.Good) {
	g := &f.good
	now, err := f.opts.Store.KeepGood(ctx, next, g.key.ModRevision)
	if err != nil {
		g.due = true
		if !g.failed {
			f.log.Error("cannot record the last good documents in the store: replicas that start while the newest documents are faulty may not find them; retrying",
				"error", err)
		}
		g.failed = true
		return
	}
	if g.failed {
		f.log.Info("the last good documents are recorded in the store again")
	}
	g.failed = false
	if now.ModRevision > 0 {
		g.key = now
	}
}

// setGood takes in what the store has.
func (f *Feed) setGood(ctx context.Context, key store.Good) {
	g := &f.good
	if key.Digest != g.key.Digest {
		g.lost = time.Time{}
	}
	g.key = key
	if f.servesNewest() {
		f.keepNewest(ctx)
	} else {
		f.wake = true
	}
}

// retry tries again what was not possible before.
func (f *Feed) retry(ctx context.Context) {
	if !f.good.due {
		return
	}
	f.good.due = false
	if f.servesNewest() {
		f.keepNewest(ctx)
	} else {
		f.wake = true
	}
}
