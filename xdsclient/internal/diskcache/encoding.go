package diskcache

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	cachepb "github.com/dynxds/dynxds/proto/dynxds/resource_cache/v1"
)

// Magic is the first line of a file. The number is that of the format.
const Magic = "dynxds resource cache 2\n"

// encode writes a file with the records, the newest ones first, as far as they fit. One record at a time is in
// memory.
func encode(file io.Writer, h *cachepb.Header, records []Record) (omitted int, err error) {
	slices.SortStableFunc(records, func(a, b Record) int { return cmp.Compare(b.Time.UnixNano(), a.Time.UnixNano()) })
	sum := sha256.New()
	to := bufio.NewWriterSize(io.MultiWriter(file, sum), 64<<10)
	to.WriteString(Magic)                       // the error is that of Flush
	written, kept := len(Magic)+sha256.Size, -1 // the header does not count
	var message, resource []byte
	write := func(m proto.Message) (err error) {
		message = protowire.AppendVarint(message[:0], uint64(proto.Size(m)))
		message, err = proto.MarshalOptions{}.MarshalAppend(message, m)
		if err == nil && written+len(message) <= MaxBytes {
			to.Write(message)
			written += len(message)
			kept++
		}
		return err
	}
	err = write(h)
	for i := 0; i < len(records) && kept < MaxRecords && err == nil; i++ {
		r := &records[i]
		resource = append(resource[:0], r.Resource...)
		if r.Encode != nil {
			resource = r.Encode(resource[:0])
		}
		err = write(r.message(resource))
	}
	if err := errors.Join(err, to.Flush()); err != nil {
		return 0, err
	}
	_, err = file.Write(sum.Sum(nil))
	return len(records) - kept, err
}

// decode reads a file.
func decode(b []byte) (h *cachepb.Header, records []Record, err error) {
	if !bytes.HasPrefix(b, []byte(Magic)) {
		return nil, nil, errors.New("it is of another format or version")
	}
	body := b[:max(len(Magic), len(b)-sha256.Size)]
	if sum := sha256.Sum256(body); !bytes.Equal(b[len(body):], sum[:]) {
		return nil, nil, errors.New("it is corrupt: its checksum is wrong")
	}
	rest, whole := bytes.NewReader(body[len(Magic):]), protodelim.UnmarshalOptions{MaxSize: MaxBytes}
	h = new(cachepb.Header)
	if whole.UnmarshalFrom(rest, h) != nil {
		return nil, nil, errors.New("it is corrupt: its header is malformed")
	}
	for rest.Len() > 0 {
		m := new(cachepb.Record)
		switch err := whole.UnmarshalFrom(rest, m); {
		case err != nil:
			return nil, nil, errors.New("it is corrupt: a record is malformed")
		case m.GetTypeUrl() == "" || m.GetName() == "":
			return nil, nil, errors.New("it is corrupt: a record has no type or no name")
		case len(records) == MaxRecords:
			return nil, nil, fmt.Errorf("it is corrupt: it has more than %d resources", MaxRecords)
		}
		records = append(records, newRecord(m))
	}
	return h, records, nil
}
