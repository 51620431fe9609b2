package diskcache

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// A file is read and written as a stream: one record at a time is in memory.

// bufferSize is that of the buffers for reading and writing, in bytes.
const bufferSize = 64 << 10

// counted is a reader that knows its place, and how much there is.
type counted struct {
	from      *bufio.Reader
	at, limit int64
}

func (c *counted) ReadByte() (byte, error) {
	b, err := c.from.ReadByte()
	if err == nil {
		c.at++
	}
	return b, err
}

// message reads the next message into b, which it enlarges if necessary.
func (c *counted) message(b []byte) ([]byte, error) {
	size, err := binary.ReadUvarint(c)
	switch {
	case err == io.EOF:
		return b, io.ErrUnexpectedEOF
	case err != nil:
		return b, err
	case size > uint64(c.limit-c.at):
		return b, io.ErrUnexpectedEOF
	case uint64(cap(b)) < size:
		b = make([]byte, size)
	}
	n, err := io.ReadFull(c.from, b[:size])
	c.at += int64(n)
	return b[:size], err
}

// scan reads a file, and calls record with each record and its place. A message is valid until record returns.
// What record was given counts only if there is no error, as the checksum comes last.
func (f *File) scan(file io.ReadSeeker, record func(message []byte, offset int64) error) (h header, err error) {
	size, err := file.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return h, err
	}
	magic := make([]byte, len(Magic))
	if _, err := io.ReadFull(file, magic); err != nil || string(magic) != Magic {
		return h, errors.New("it is of another format or version")
	}
	limit := size - sha256.Size
	if limit < int64(len(Magic)) {
		return h, errors.New("it is corrupt: it is cut short")
	}
	sum := sha256.New()
	sum.Write(magic)
	body := io.TeeReader(io.LimitReader(file, limit-int64(len(Magic))), sum)
	c := counted{bufio.NewReaderSize(body, bufferSize), int64(len(Magic)), limit}
	h, fault := f.messages(&c, record)
	if _, err := io.Copy(io.Discard, c.from); err != nil {
		return h, err
	}
	found := make([]byte, sha256.Size)
	if _, err := io.ReadFull(file, found); err != nil {
		return h, err
	}
	if !bytes.Equal(found, sum.Sum(nil)) {
		return h, errors.New("it is corrupt: its checksum is wrong")
	}
	return h, fault
}

// messages reads what is between Magic and the checksum.
func (f *File) messages(c *counted, record func(message []byte, offset int64) error) (h header, err error) {
	message, err := c.message(nil)
	if err == nil {
		err = h.parse(message)
	}
	if err != nil {
		return h, fmt.Errorf("it is corrupt: %w", err)
	}
	if h.bootstrap != f.bootstrap {
		return h, errors.New("it is of another bootstrap or node")
	}
	for n := 0; c.at < c.limit; n++ {
		if n == MaxRecords {
			return h, fmt.Errorf("it has more than %d resources", MaxRecords)
		}
		if message, err = c.message(message); err == nil {
			err = record(message, c.at-int64(len(message)))
		}
		if err != nil {
			return h, fmt.Errorf("it is corrupt: %w", err)
		}
	}
	return h, nil
}

// write puts a new file in the place of the old one, or leaves the old one as it is. It counts the records that
// do not fit.
func (f *File) write(m *merger, now time.Time, left *int) (err error) {
	file, err := os.CreateTemp(f.dir, filepath.Base(f.path)+".*.tmp") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(file.Name())
		}
	}()
	*left, err = f.encode(file, m, now)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err = f.markSecured(m.securedSince); err != nil {
		return err
	}
	return os.Rename(file.Name(), f.path)
}

// encode writes the contents of a file with the records, as far as they fit.
func (f *File) encode(file io.Writer, m *merger, now time.Time) (left int, err error) {
	sum := sha256.New()
	to := bufio.NewWriterSize(io.MultiWriter(file, sum), bufferSize)
	h := header{f.bootstrap, now, m.securedSince}
	start := protowire.AppendBytes([]byte(Magic), h.append(nil))
	to.Write(start) // the error is that of Flush
	written, kept := len(start)+sha256.Size, 0
	var message, resource, size []byte
	for i := range m.entries {
		if kept == MaxRecords {
			break
		}
		if message, resource, err = m.message(&m.entries[i], message, resource); err != nil {
			return 0, err
		}
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
	return len(m.entries) - kept, err
}

// message returns the message of a record, in b if it fits. resource is memory for news.
func (m *merger) message(e *entry, b, resource []byte) (message, more []byte, err error) {
	if e.news != nil {
		r := e.news.Record
		if e.news.Encode != nil {
			resource = e.news.Encode(resource[:0])
			r.Resource = resource
		}
		return r.append(b[:0]), resource, nil
	}
	if cap(b) < int(e.size) {
		b = make([]byte, e.size)
	}
	b = b[:e.size]
	if _, err := m.old.ReadAt(b, e.offset); err != nil || !e.ahead {
		return b, resource, err
	}
	var r Record
	if err := r.parse(b, true); err != nil {
		return b, resource, err
	}
	r.Time = time.Unix(0, e.at)
	return r.append(b[:0]), resource, nil
}
