package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Snapshot is what the store has at one revision.
type Snapshot struct {
	// Documents are the texts of document files, by name, as in a folder.
	Documents map[string]string
	// others are the names of the keys below docs that are no documents.
	others map[string]bool
	head   head
}

// Load returns the present documents.
func (s *Store) Load(ctx context.Context) (*Snapshot, error) { return s.since(ctx, &Snapshot{}) }

// since returns the present documents: before itself if nothing has changed since. It asks only for what has changed, or for all documents,
// if some were deleted, or if etcd was restored from a backup.
func (s *Store) since(ctx context.Context, before *Snapshot) (*Snapshot, error) {
	if before.head.revision > 0 {
		// A count costs etcd nothing, however many documents there are.
		response, err := s.get(ctx, s.docs(), clientv3.WithCountOnly())
		if err != nil || headOf(response.Header) == before.head {
			return before, err
		}
	}
	response, err := s.get(ctx, s.docs(), clientv3.WithPrefix(), clientv3.WithMinModRev(before.head.revision+1))
	if err != nil {
		return before, err
	}
	after, whole := s.with(before, response)
	if before.head.revision > 0 && !whole {
		return s.Load(ctx)
	}
	return after, nil
}

// with returns a snapshot with what has changed since, and whether that is what the store has.
func (s *Store) with(before *Snapshot, changes *clientv3.GetResponse) (after *Snapshot, whole bool) {
	after = &Snapshot{Documents: make(map[string]string, len(before.Documents)+len(changes.Kvs)), others: map[string]bool{}, head: headOf(changes.Header)}
	maps.Copy(after.Documents, before.Documents)
	maps.Copy(after.others, before.others)
	for _, kv := range changes.Kvs {
		if name, ok := s.name(kv.Key); ok {
			after.Documents[name] = string(kv.Value)
		} else {
			after.others[name] = true
		}
	}
	return after, after.head.continues(before.head) && len(after.Documents)+len(after.others) == int(changes.Count)
}

// Edit is the change of one document.
type Edit struct {
	Name string
	// Before and After are the texts, nil before the document was created and after it was deleted.
	Before, After *string
}

// String returns the name, after "+" for a document that is created, "-" for one that is deleted, and "~" for another.
func (e Edit) String() string {
	switch {
	case e.Before == nil:
		return "+ " + e.Name
	case e.After == nil:
		return "- " + e.Name
	}
	return "~ " + e.Name
}

// Edits returns what makes another set of the documents, by name.
func (s *Snapshot) Edits(set map[string]string) (edits []Edit) {
	names := maps.Clone(s.Documents)
	maps.Copy(names, set)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		e := Edit{Name: name}
		if text, ok := s.Documents[name]; ok {
			e.Before = &text
		}
		if text, ok := set[name]; ok {
			e.After = &text
		}
		if e.Before == nil || e.After == nil || *e.Before != *e.After {
			edits = append(edits, e)
		}
	}
	return edits
}

// attempts bounds the transactions of Write. In each round one writer succeeds.
const attempts = 100

// Write makes the documents of the store be a set, by name and text: it changes what differs and deletes all others, in one
// transaction. If another program writes in between, it does so again, and the last one wins as a whole: the store never
// has a mixture of two sets. It returns what the store had before; if that is the set, nothing is written.
func (s *Store) Write(ctx context.Context, set map[string]string) (before *Snapshot, err error) {
	for range attempts {
		if before, err = s.Load(ctx); err != nil {
			return nil, err
		}
		edits := before.Edits(set)
		if len(edits) == 0 {
			return before, nil
		}
		if ok, err := s.Commit(ctx, before, edits); ok || err != nil {
			return before, err
		}
	}
	return nil, fmt.Errorf("another program changes the documents of %s all the time; stop it, and try again", s.Dir())
}

// Commit writes edits of a snapshot in one transaction. It reports false if another program has changed documents since:
// then the store does not have the result of the edits.
func (s *Store) Commit(ctx context.Context, from *Snapshot, edits []Edit) (ok bool, err error) {
	client, err := s.connect()
	if err != nil {
		return false, s.fault("write to", err)
	}
	want := len(from.Documents) + len(from.others)
	var writes []clientv3.Op
	for _, e := range edits {
		switch {
		case e.After == nil:
			want--
			writes = append(writes, clientv3.OpDelete(s.docs()+e.Name))
		case e.Before == nil:
			want++
			fallthrough
		default:
			writes = append(writes, clientv3.OpPut(s.docs()+e.Name, *e.After))
		}
	}
	// The condition sees what was created or changed. It does not see what was deleted, which the count shows.
	unchanged := clientv3.Compare(clientv3.ModRevision(s.docs()).WithPrefix(), "<", from.head.revision+1)
	count := clientv3.OpGet(s.docs(), clientv3.WithPrefix(), clientv3.WithCountOnly())
	ctx, cancel := s.timeout(ctx)
	defer cancel()
	response, err := client.Txn(ctx).If(unchanged).Then(append(writes, count)...).Commit()
	if err != nil {
		return false, s.refused(err, len(edits))
	}
	if !response.Succeeded {
		return false, nil
	}
	return int(response.Responses[len(writes)].GetResponseRange().Count) == want, nil
}

// refused explains the error of a transaction.
func (s *Store) refused(err error, files int) error {
	st, _ := status.FromError(err)
	switch {
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return fmt.Errorf("nothing was written: %d files change at once, and etcd takes --max-txn-ops of them, less one; that is 128 by default: "+
			"raise it, or put several documents into one file", files)
	case errors.Is(err, rpctypes.ErrRequestTooLarge), st.Code() == codes.ResourceExhausted && strings.Contains(st.Message(), "larger than max"):
		return fmt.Errorf("nothing was written: the files that change at once are larger than etcd's --max-request-bytes, 1.5 MiB by default; "+
			"raise it: %w", err)
	case errors.Is(err, rpctypes.ErrNoSpace), errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrUserEmpty):
		return s.fault("write to", err)
	}
	return fmt.Errorf("%w; the change may have been written: to be sure, do it again", s.fault("write to", err))
}
