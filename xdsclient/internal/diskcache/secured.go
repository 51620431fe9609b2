package diskcache

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	cachepb "github.com/dynxds/dynxds/proto/dynxds/resource_cache/v1"
)

// An older copy of the file is a valid file, and may be from before a cluster asked for TLS. So the header says
// when the file last got a resource that asks for security and did not before, and a second file says so too.
// A file that has an earlier time is older than the second file:
//
//	9:00   the file has a cluster without TLS, and no time
//	10:00  the cluster asks for TLS: both files have 10:00
//	11:00  someone puts back the file of 9:00 from a backup: it is not used

// checkSecured checks that the file is not older than the second one.
func (c *Cache) checkSecured(h *cachepb.Header) error {
	switch since, err := c.markedSince(); {
	case err != nil:
		return fmt.Errorf("%s cannot be read, which says since when its clusters ask for TLS: %w; remove both files", c.mark(), err)
	case time.Unix(0, h.GetSecuredSince()).Before(since):
		return fmt.Errorf("it is an older file that was put back, from before its clusters asked for TLS (since %s, as %s says); remove both files",
			since.UTC().Format(time.RFC3339), c.mark())
	}
	return nil
}

// markedSince returns the time in the second file, zero if there is none.
func (c *Cache) markedSince() (time.Time, error) {
	text, err := os.ReadFile(c.mark())
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	nanos, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return time.Unix(0, nanos), err
}

// markSecured writes the second file, unless it says so already. It comes first: a crash in between leaves a file that is
// not used.
func (c *Cache) markSecured(since time.Time) error {
	if known, err := c.markedSince(); err == nil && known.Equal(since) {
		os.Chtimes(c.mark(), time.Time{}, time.Now()) // it is as old as the file: see prune
		return nil
	}
	return c.put(c.mark(), func(file *os.File) error {
		_, err := fmt.Fprintln(file, since.UnixNano())
		return err
	}, func() error { return nil })
}

// securedBy returns the time for the header of a new file: now if a resource asks for security that was not known
// to, and otherwise what the second file says; and the hashes of the keys of resources that ask for security.
func (c *Cache) securedBy(records []Record, now time.Time) (since time.Time, secured map[uint64]struct{}) {
	since, err := c.markedSince()
	if err != nil {
		since = now
	}
	secured = make(map[uint64]struct{})
	for i := range records {
		if !records[i].Secured {
			continue
		}
		hash := maphash.Comparable(seed, records[i].Key)
		secured[hash] = struct{}{}
		if _, known := c.secured[hash]; !known && since.Before(now) {
			since = now
		}
	}
	return since, secured
}
