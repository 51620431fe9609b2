package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/internal/faults"
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
	// packed are the edits, compressed. A history may have more of them than fit into memory unpacked.
	packed []byte
	// key is the record's own, empty before it is written.
	key string
}

// Edit is the change of one document, whose text is nil before it was created and after it was deleted.
type Edit struct {
	Name   string  `json:"name"`
	Before *string `json:"before,omitempty"`
	After  *string `json:"after,omitempty"`
}

const history = "/history/"

const (
	// maxNumber is the last number of a record whose key is in order.
	maxNumber = 9_999_999_999
	// maxEdits bounds the edits of a record, uncompressed: what they are compressed to may have been written by
	// anybody.
	maxEdits = 64 << 20
)

// recordKey is such that the order of keys is that of numbers.
func (s *Store) recordKey(number int64) string {
	return fmt.Sprintf("%s%s%010d", s.prefix, history, number)
}

// numberOf returns the number of the record of a key.
func numberOf(key string) (int64, error) {
	name := path.Base(key)
	number, err := strconv.ParseInt(name, 10, 64)
	if err != nil || number < 1 || number > maxNumber || name != fmt.Sprintf("%010d", number) {
		return 0, noRecord(key, errors.New("it is not named by a number of ten digits"))
	}
	return number, nil
}

func noRecord(key string, why error) error {
	return fmt.Errorf("%q is no record of dynxds; delete it: %w", key, why)
}

// With returns the record with edits, which are by name, one for each document that was changed.
func (r Record) With(edits []Edit) (Record, error) {
	text, err := json.Marshal(edits)
	if err != nil {
		return r, err
	}
	if len(text) > maxEdits {
		return r, fmt.Errorf("nothing was written: what is changed at once, old and new, has more than %d MiB, which is all that "+
			"the history can have of it; apply fewer documents at once", maxEdits>>20)
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		return r, err
	}
	err = w.Close()
	r.packed = b.Bytes()
	return r, err
}

// encode returns the record's value: a line of JSON, which people can read with etcdctl, and the edits,
// compressed.
func (r *Record) encode() (string, error) {
	head, err := json.Marshal(r)
	return string(head) + "\n" + string(r.packed), err
}

// decodeRecord reads the record of a key, but for its edits.
func decodeRecord(key string, value []byte, revision int64) (Record, error) {
	number, err := numberOf(key)
	if err != nil {
		return Record{}, err
	}
	head, packed, _ := bytes.Cut(value, []byte("\n"))
	r := Record{Revision: revision, packed: packed, key: key}
	if err = json.Unmarshal(head, &r); err == nil && number != r.Number {
		err = fmt.Errorf("its number is %d", r.Number)
	}
	if err != nil {
		return r, noRecord(key, err)
	}
	return r, nil
}

// Edits returns what was changed, by name, one edit for each document.
func (r *Record) Edits() ([]Edit, error) {
	edits, err := unpack(r.packed)
	if err != nil {
		return nil, noRecord(r.key, err)
	}
	return edits, nil
}

func unpack(packed []byte) (edits []Edit, err error) {
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(reader, maxEdits+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxEdits {
		return nil, fmt.Errorf("its documents have more than %d MiB", maxEdits>>20)
	}
	if err := json.Unmarshal(text, &edits); err != nil {
		return nil, err
	}
	for i, e := range edits {
		switch {
		case !folder.IsName(e.Name):
			return nil, fmt.Errorf("%s is not a valid document name", faults.Quote(e.Name))
		case i > 0 && e.Name <= edits[i-1].Name:
			return nil, fmt.Errorf("%s is not in order", faults.Quote(e.Name))
		case e.Before == nil && e.After == nil:
			return nil, fmt.Errorf("it does not change %s", faults.Quote(e.Name))
		}
	}
	return edits, nil
}

// historyPage bounds the records in one response.
const historyPage = 100

// History returns the records as of a revision, zero for the present one, the first one first.
func (s *Store) History(ctx context.Context, revision int64) (records []Record, err error) {
	_, err = s.pages(ctx, history, revision, historyPage, func(kv *mvccpb.KeyValue) error {
		r, err := decodeRecord(string(kv.Key), kv.Value, kv.ModRevision)
		records = append(records, r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the history: %w", err)
	}
	return records, nil
}
