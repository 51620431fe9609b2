package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
	"github.com/dynxds/dynxds/internal/faults"
)

const good = "/good"

// maxGood bounds the documents of a Good, uncompressed: anybody may have written them.
const maxGood = 1 << 30

// Digest returns that of the documents of a snapshot.
func (s *Snapshot) Digest() (all Digest) {
	for name, d := range s.Documents {
		all.Toggle(DigestOf(name, d.Data))
	}
	return all
}

// Digest identifies a set of documents, by their names and texts. The zero value is that of no documents.
type Digest [sha256.Size]byte

// DigestOf returns the digest of a set with one document.
func DigestOf(name string, data []byte) (d Digest) {
	h := sha256.New()
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(name)))
	h.Write(size[:])
	h.Write([]byte(name))
	h.Write(data)
	h.Sum(d[:0])
	return d
}

// Toggle adds the digest of a document, or removes it if it was added before. The order makes no difference.
func (d *Digest) Toggle(document Digest) {
	for i := range d {
		d[i] ^= document[i]
	}
}

// String returns it in hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText is for JSON.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is for JSON.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(d)) {
		return fmt.Errorf("%s is not a digest", faults.Quote(string(text)))
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// Good says which documents were good as a whole the last time that all were: who wrote it has checked them
// together. Replicas serve these while the documents of the store are faulty, so that all of them serve the same.
type Good struct {
	// Digest is that of the documents.
	Digest Digest `json:"digest"`
	// At is a revision at which the store had them, zero for ModRevision.
	At int64 `json:"at,omitempty"`
	// ModRevision is that of the key, zero if there is none.
	ModRevision int64 `json:"-"`
	// packed are the texts, compressed; nil if nobody needed them yet.
	packed []byte
}

// Revision returns a revision at which the store had the documents. It may be compacted.
func (g *Good) Revision() int64 {
	if g.At == 0 {
		return g.ModRevision
	}
	return g.At
}

// HasDocuments reports whether Documents returns the texts.
func (g *Good) HasDocuments() bool { return len(g.packed) > 0 }

// Documents returns the texts by name. They may be those of another digest.
func (g *Good) Documents() (map[string]string, error) {
	texts, err := g.unpack()
	if err != nil {
		return nil, fmt.Errorf("the last good documents, in the key %s of the store: %w", good, err)
	}
	return texts, nil
}

func (g *Good) unpack() (texts map[string]string, err error) {
	reader, err := gzip.NewReader(bytes.NewReader(g.packed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(reader, maxGood+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxGood {
		return nil, fmt.Errorf("they have more than %d MiB", maxGood>>20)
	}
	if err := json.Unmarshal(text, &texts); err != nil {
		return nil, err
	}
	for name := range texts {
		if !folder.IsName(name) {
			return nil, fmt.Errorf("%s is not a valid document name", faults.Quote(name))
		}
	}
	return texts, nil
}

// With returns a Good that has the texts of its documents.
func (g Good) With(texts map[string]string) (Good, error) {
	text, err := json.Marshal(texts)
	if err != nil {
		return g, err
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		return g, err
	}
	err = w.Close()
	g.packed = b.Bytes()
	return g, err
}

// encode returns the key's value: a line of JSON, which people can read with etcdctl, and the texts, compressed.
func (g *Good) encode() (string, error) {
	head, err := json.Marshal(g)
	return string(head) + "\n" + string(g.packed), err
}

// goodOf reads the key. A value that is not of dynxds counts as that of documents that nobody has.
func goodOf(kv *mvccpb.KeyValue) Good {
	head, packed, _ := bytes.Cut(kv.Value, []byte("\n"))
	g := Good{packed: packed}
	if json.Unmarshal(head, &g) != nil {
		g = Good{Digest: sha256.Sum256(kv.Value)}
	}
	g.ModRevision = kv.ModRevision
	return g
}

// GoodKey returns the key of Good.
func (s *Store) GoodKey() string { return s.prefix + good }

// goodAt returns the Good of a revision.
func (s *Store) goodAt(ctx context.Context, revision int64) (Good, error) {
	response, err := s.get(ctx, s.prefix+good, clientv3.WithRev(revision))
	if err != nil || len(response.Kvs) == 0 {
		return Good{}, err
	}
	return goodOf(response.Kvs[0]), nil
}

// errNotKept is the error of KeepGood if etcd refuses the size.
var errNotKept = errors.New("they are larger, compressed, than a request to etcd may be; raise etcd's --max-request-bytes, which is 1.5 MiB by default")

// KeepGood replaces the Good that has the revision from, zero for none, and returns it as it was written. Its revision
// is zero if there is another one by now, which a Watcher reports.
func (s *Store) KeepGood(ctx context.Context, g Good, from int64) (Good, error) {
	client, err := s.Client()
	if err != nil {
		return g, err
	}
	value, err := g.encode()
	if err != nil {
		return g, err
	}
	key := s.prefix + good
	ctx, cancel := s.Timeout(ctx)
	defer cancel()
	response, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", from)).Then(clientv3.OpPut(key, value)).Commit()
	if err != nil {
		if tooLarge(err) {
			err = errNotKept
		}
		return g, s.fault("keep the last good documents in", err)
	}
	if g.ModRevision = 0; response.Succeeded {
		g.ModRevision = response.Header.Revision
	}
	return g, nil
}
