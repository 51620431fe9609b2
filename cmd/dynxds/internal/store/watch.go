package store

import (
	"context"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// Batch is what changed at a revision, or at several.
type Batch struct {
	// Revision is the last one. There may be no changes: of documents, or at all.
	Revision int64
	// Changes are by name, nil for a document that was deleted.
	Changes map[string]*Document
	// Good is nil if it did not change.
	Good *Good
	// Unknown are new keys below docs that are no documents.
	Unknown []string
}

// Watcher follows the changes of documents and of Good.
type Watcher struct {
	store   *Store
	client  *clientv3.Client
	changes clientv3.WatchChan
	cancel  context.CancelFunc
	ctx     context.Context
}

// Watch follows the changes after a revision. It fails if the member of etcd that is next does not answer in its
// share of Options.Timeout; the next Watch asks another one. Later it continues with another member if one is
// unreachable, and waits if all are.
func (s *Store) Watch(ctx context.Context, after int64) (*Watcher, error) {
	client, err := s.Client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	// The client has one stream for all watches with the same metadata. This one is to have its own, of
	// the next member, as a watch that is opened after another one failed should.
	ctx = metadata.AppendToOutgoingContext(ctx, "dynxds-watch", strconv.FormatUint(s.watches.Add(1), 10))
	late := time.AfterFunc(s.share(), cancel)
	// From the first document to Good: a watch of its own would not say in which order they changed.
	changes := client.Watch(ctx, s.prefix+docs, clientv3.WithRange(s.prefix+good+"\x00"), clientv3.WithRev(after+1), clientv3.WithProgressNotify())
	if !late.Stop() {
		cancel()
		return nil, s.fault("watch", context.DeadlineExceeded)
	}
	return &Watcher{store: s, client: client, changes: changes, cancel: cancel, ctx: ctx}, nil
}

// Close ends the watch.
func (w *Watcher) Close() { w.cancel() }

// Responses has what etcd sends; Batch makes a Batch of it. It is closed when the watch ends.
func (w *Watcher) Responses() clientv3.WatchChan { return w.changes }

// Ask asks etcd how far the watch is: a batch without changes answers, after all that are before it.
func (w *Watcher) Ask() error {
	if err := w.ctx.Err(); err != nil {
		return err // the client would open a stream, and not end it
	}
	ctx, cancel := w.store.Timeout(w.ctx)
	defer cancel()
	return w.client.RequestProgress(ctx)
}

// Batch returns what a response has. The error ends the watch; it is ErrCompacted if the changes to come
// are compacted.
func (w *Watcher) Batch(r clientv3.WatchResponse) (Batch, error) {
	if r.CompactRevision != 0 {
		return Batch{}, ErrCompacted
	}
	if err := r.Err(); err != nil {
		return Batch{}, w.store.fault("watch", err)
	}
	b := Batch{Revision: r.Header.Revision}
	for _, event := range r.Events {
		name, ok := w.store.name(event.Kv.Key)
		switch {
		case string(event.Kv.Key) == w.store.prefix+good:
			b.Good = &Good{}
			if event.Type != clientv3.EventTypeDelete {
				*b.Good = goodOf(event.Kv)
			}
			continue
		case !ok && strings.HasPrefix(string(event.Kv.Key), w.store.prefix+docs) && event.Type != clientv3.EventTypeDelete:
			b.Unknown = append(b.Unknown, string(event.Kv.Key))
			continue
		case !ok:
			continue
		}
		if b.Changes == nil {
			b.Changes = make(map[string]*Document)
		}
		b.Changes[name] = nil
		if event.Type != clientv3.EventTypeDelete {
			d := documentOf(event.Kv)
			b.Changes[name] = &d
		}
	}
	return b, nil
}
