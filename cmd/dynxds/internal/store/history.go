package store

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Record is one change of documents by "dynxds apply" or "dynxds rollback". It is independent of etcd's own
// history, which etcd compacts.
type Record struct {
	// Number counts the records of a store, from 1.
	Number int64 `json:"number"`
	// Revision is etcd's, of the record and of what it wrote. It is not part of the value.
	Revision int64     `json:"-"`
	Author   string    `json:"author"`
	Time     time.Time `json:"time"`
	// Command is what was called, such as "rollback 12". Message is the author's; it may be empty.
	Command string `json:"command"`
	Message string `json:"message,omitempty"`
	// Edits are by name, one for each document that was changed.
	Edits []Edit `json:"-"`
}

// Edit is the change of one document, whose text is nil before it was created and after it was deleted.
type Edit struct {
	Name   string  `json:"name"`
	Before *string `json:"before,omitempty"`
	After  *string `json:"after,omitempty"`
}

const history = "/history/"

// maxRecord bounds a record that is read, uncompressed: more than the largest request that etcd can be
// configured for.
const maxRecord = 1 << 30

// recordKey is such that the order of keys is that of numbers.
func (s *Store) recordKey(number int64) string {
	return fmt.Sprintf("%s%s%010d", s.prefix, history, number)
}

// encode returns the record's value: a line of JSON, which people can read with etcdctl, and the edits,
// compressed.
func (r *Record) encode() (string, error) {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(r); err != nil { // which ends the line
		return "", err
	}
	w := gzip.NewWriter(&b)
	if err := json.NewEncoder(w).Encode(r.Edits); err != nil {
		return "", err
	}
	err := w.Close()
	return b.String(), err
}

func decodeRecord(key string, value []byte, revision int64) (Record, error) {
	head, edits, _ := bytes.Cut(value, []byte("\n"))
	r := Record{Revision: revision}
	err := json.Unmarshal(head, &r)
	if err == nil {
		err = r.decodeEdits(edits)
	}
	if number, bad := strconv.ParseInt(path.Base(key), 10, 64); err == nil && (bad != nil || number != r.Number) {
		err = fmt.Errorf("its number is %d", r.Number)
	}
	if err != nil {
		return r, fmt.Errorf("%s is no record of dynxds; delete it: %w", key, err)
	}
	return r, nil
}

func (r *Record) decodeEdits(data []byte) error {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(reader, maxRecord+1))
	if err != nil {
		return err
	}
	if len(text) > maxRecord {
		return errors.New("it is too large")
	}
	return json.Unmarshal(text, &r.Edits)
}

// History returns the records as of a revision, zero for the present one, the first one first.
func (s *Store) History(ctx context.Context, revision int64) ([]Record, error) {
	client, err := s.Client()
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.Timeout(ctx)
	defer cancel()
	response, err := client.Get(ctx, s.prefix+history, clientv3.WithPrefix(), clientv3.WithRev(revision))
	if err != nil {
		return nil, s.fault("read the history of", err)
	}
	records := make([]Record, len(response.Kvs))
	for i, kv := range response.Kvs {
		if records[i], err = decodeRecord(string(kv.Key), kv.Value, kv.ModRevision); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(records, func(a, b Record) int { return cmp.Compare(a.Number, b.Number) })
	return records, nil
}
