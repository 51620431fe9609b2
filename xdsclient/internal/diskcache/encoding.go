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

	"google.golang.org/protobuf/encoding/protowire"
)

// Magic is the first line of a file. The number is that of the format.
const Magic = "dynxds resource cache 2\n"

// Entry is a record to be written.
type Entry struct {
	Record
	// Encode returns Record.Resource, which is then not set. It may use the memory that it is given. The
	// resources are needed one after the other, and not kept.
	Encode func(b []byte) []byte
}

// encode writes a file with the records, the newest ones first, as far as they fit. One record at a time is in
// memory.
func encode(file io.Writer, h header, entries []Entry) (omitted int, err error) {
	slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Compare(b.Time.UnixNano(), a.Time.UnixNano()) })
	sum := sha256.New()
	to := bufio.NewWriterSize(io.MultiWriter(file, sum), 64<<10)
	start := protowire.AppendBytes([]byte(Magic), h.append(nil))
	to.Write(start) // the error is that of Flush
	written, kept := len(start)+sha256.Size, 0
	var message, resource, size []byte
	for i := range entries {
		if kept == MaxRecords {
			break
		}
		r := entries[i].Record
		if entries[i].Encode != nil {
			resource = entries[i].Encode(resource[:0])
			r.Resource = resource
		}
		message = r.append(message[:0])
		size = protowire.AppendVarint(size[:0], uint64(len(message)))
		if written+len(size)+len(message) > MaxBytes {
			continue
		}
		to.Write(size)
		to.Write(message)
		written += len(size) + len(message)
		kept++
	}
	if err := to.Flush(); err != nil {
		return 0, err
	}
	_, err = file.Write(sum.Sum(nil))
	return len(entries) - kept, err
}

// decode reads a file. The records share their memory with it.
func decode(b []byte) (h header, records []Record, err error) {
	if !bytes.HasPrefix(b, []byte(Magic)) {
		return h, nil, errors.New("it is of another format or version")
	}
	body := b[:max(len(Magic), len(b)-sha256.Size)]
	if sum := sha256.Sum256(body); !bytes.Equal(b[len(body):], sum[:]) {
		return h, nil, errors.New("it is corrupt: its checksum is wrong")
	}
	rest := body[len(Magic):]
	for first := true; first || len(rest) > 0; first = false {
		message, n := protowire.ConsumeBytes(rest)
		var r Record
		switch {
		case n < 0:
			err = protowire.ParseError(n)
		case first:
			err = h.parse(message)
		default:
			err = r.parse(message)
			records = append(records, r)
		}
		if err == nil && len(records) > MaxRecords {
			err = fmt.Errorf("it has more than %d resources", MaxRecords)
		}
		if err != nil {
			return h, nil, fmt.Errorf("it is corrupt: %w", err)
		}
		rest = rest[n:]
	}
	return h, records, nil
}
