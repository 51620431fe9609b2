package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/faults"
)

// Conflict is the error of Commit if the store has changed since the snapshot. Nothing was written.
type Conflict struct {
	// Records are those that were added.
	Records []Record
	// Documents are those that were changed without a record, in order.
	Documents []string
}

// Error names the other writers.
func (c *Conflict) Error() string {
	text := "nothing was written, as the store has changed since it was read"
	for _, r := range c.Records {
		text += fmt.Sprintf("; %s wrote revision %d at %s (%s)", faults.Printable(r.Author, ""), r.Number,
			r.Time.Format(time.RFC3339), faults.Printable(r.title(), ""))
	}
	if len(c.Documents) > 0 {
		text += "; modified outside dynxds: " + faults.Printable(strings.Join(c.Documents, ", "), "")
	}
	return text + "; try again"
}

// title is what was done, and why if that is known.
func (r *Record) title() string {
	if r.Message == "" {
		return r.Command
	}
	return r.Command + ": " + r.Message
}

// Commit writes edits, which are by name, one for each document, a record of them under the next number, and a Good of the
// documents that result, in one transaction, and removes records so that at most keep are left. It returns the record as it was written.
//
// The error is a *Conflict if, since the snapshot, a document was created or changed, one of the edited ones
// was deleted, or a record was written. The deletion of another document by other means than Commit is
// not noticed: etcd does not compare what is not there.
func (s *Store) Commit(ctx context.Context, from *Snapshot, r Record, edits []Edit, keep int) (Record, error) {
	client, err := s.Client()
	if err != nil {
		return r, err
	}
	if r.Number, err = s.nextNumber(ctx, client); err != nil {
		return r, err
	}
	if r, err = r.With(edits); err != nil {
		return r, err
	}
	value, err := r.encode()
	if err != nil {
		return r, err
	}
	conditions := []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(s.prefix+docs).WithPrefix(), "<", from.Revision+1),
		clientv3.Compare(clientv3.ModRevision(s.prefix+history).WithPrefix(), "<", from.Revision+1),
	}
	writes := []clientv3.Op{clientv3.OpPut(s.recordKey(r.Number), value)}
	if oldest := r.Number - int64(keep) + 1; oldest > 1 {
		writes = append(writes, clientv3.OpDelete(s.recordKey(0), clientv3.WithRange(s.recordKey(oldest))))
	}
	// What is written was checked together with what is there.
	digest := from.Digest()
	for _, e := range edits {
		if e.Before != nil {
			digest.Toggle(DigestOf(e.Name, []byte(*e.Before)))
		}
		if e.After != nil {
			digest.Toggle(DigestOf(e.Name, []byte(*e.After)))
		}
	}
	marker, err := (&Good{Digest: digest}).encode()
	if err != nil {
		return r, err
	}
	writes = append(writes, clientv3.OpPut(s.prefix+good, marker))
	for _, e := range edits {
		key := s.Key(e.Name)
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(key), "=", from.Documents[e.Name].ModRevision))
		if e.After == nil {
			writes = append(writes, clientv3.OpDelete(key))
		} else {
			writes = append(writes, clientv3.OpPut(key, *e.After))
		}
	}
	ctx, cancel := s.Timeout(ctx)
	defer cancel()
	response, err := client.Txn(ctx).If(conditions...).Then(writes...).Commit()
	switch {
	case err != nil:
		return r, s.refused(err, len(edits), len(writes))
	case !response.Succeeded:
		return r, s.conflict(ctx, from, edits)
	}
	r.Revision = response.Header.Revision
	return r, nil
}

// nextNumber returns the number after the last record. If that is newer than what a Commit is based on, etcd refuses the
// Commit.
func (s *Store) nextNumber(ctx context.Context, client *clientv3.Client) (int64, error) {
	ctx, cancel := s.Timeout(ctx)
	defer cancel()
	response, err := client.Get(ctx, s.prefix+history, clientv3.WithLastKey()...)
	if err != nil {
		return 0, s.fault("read the history of", err)
	}
	if len(response.Kvs) == 0 {
		return 1, nil
	}
	number, err := numberOf(string(response.Kvs[0].Key))
	if err == nil && number == maxNumber {
		err = noRecord(string(response.Kvs[0].Key), errors.New("there is no number after it"))
	}
	return number + 1, err
}

// refused explains the error of a transaction.
func (s *Store) refused(err error, documents, operations int) error {
	const oneFile = "or keep several documents in one file"
	switch {
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return fmt.Errorf("nothing was written: %d documents are changed at once, which takes a transaction of %d operations; "+
			"raise etcd's --max-txn-ops, which is 128 by default, %s", documents, operations, oneFile)
	case tooLarge(err):
		return fmt.Errorf("nothing was written: what is changed at once, old and new, is larger than a request to etcd may be; "+
			"raise etcd's --max-request-bytes, which is 1.5 MiB by default, or apply fewer documents at once: %w", err)
	case errors.Is(err, rpctypes.ErrNoSpace), errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrUserEmpty):
		return s.fault("write to", err)
	}
	return fmt.Errorf("%w; the change may have been written: see \"dynxds history\"", s.fault("write to", err))
}

// tooLarge reports whether a request was larger than etcd takes.
func tooLarge(err error) bool {
	st, _ := status.FromError(err)
	return errors.Is(err, rpctypes.ErrRequestTooLarge) || st.Code() == codes.ResourceExhausted && strings.Contains(st.Message(), "larger than max")
}

// conflict finds out who wrote after a snapshot.
func (s *Store) conflict(ctx context.Context, from *Snapshot, edits []Edit) error {
	now, err := s.Load(ctx)
	if err != nil {
		return fmt.Errorf("nothing was written, as the store has changed since it was read; could not determine by whom: %w", err)
	}
	records, err := s.History(ctx, now.Revision)
	if err != nil {
		return fmt.Errorf("nothing was written, as the store has changed since it was read; could not determine by whom: %w", err)
	}
	c := &Conflict{}
	recorded := make(map[int64]bool)
	for _, r := range records {
		if r.Revision > from.Revision {
			c.Records = append(c.Records, r)
			recorded[r.Revision] = true
		}
	}
	changed := make(map[string]bool)
	for name, d := range now.Documents {
		if d.ModRevision > from.Revision && !recorded[d.ModRevision] {
			changed[name] = true
		}
	}
	for _, e := range edits {
		if _, there := now.Documents[e.Name]; e.Before != nil && !there && !deletedBy(c.Records, e.Name) {
			changed[e.Name] = true
		}
	}
	c.Documents = slices.Sorted(maps.Keys(changed))
	return c
}

func deletedBy(records []Record, name string) bool {
	return slices.ContainsFunc(records, func(r Record) bool {
		edits, _ := r.Edits() // one that is none deletes nothing
		return slices.ContainsFunc(edits, func(e Edit) bool { return e.Name == name && e.After == nil })
	})
}
