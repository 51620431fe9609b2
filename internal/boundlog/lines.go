package boundlog

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/grpclog"

	"github.com/dynxds/dynxds/internal/bounds"
)

// lines is the budget of the lines of one severity (bounds.ClientLines). A line has a kind, which the program
// chooses and no peer can invent: the format of the line. Lines that the budget does not allow are
// counted by their kind, and the counts are said:
//
//	now    a peer causes 1,000 lines of a kind: the first 20 are logged
//	+1 s   it causes another one, which is logged, and says that 980 lines were left out
//	+10 s  a line of its own says how many more were left out
//
// It is safe for concurrent use, and may be shared by bubbles of testing/synctest.
type lines struct {
	severity  severity
	component grpclog.DepthLoggerV2 // of the lines that say counts

	mu    sync.Mutex
	all   bucket
	kinds map[string]*kind
	// due is when the counts are said. It is zero if there are none.
	due time.Time
}

type kind struct {
	bucket
	omitted int
}

const (
	// maxKinds bounds the memory of lines. Further kinds share a bucket.
	maxKinds = 128
	// otherKinds is the kind of all beyond maxKinds.
	otherKinds = "lines of other kinds"
	// sayAfter is how long a count waits for a line of its kind that says it.
	sayAfter = 10 * time.Second
)

// take asks for a line. If ok is true it may be logged, and omitted is how many lines of its kind were left
// out before, which the line has to say unless it is 0. Otherwise it is counted.
func (l *lines) take(format string) (omitted int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	k := l.kindOf(format)
	all, fitsAll := l.all.after(bounds.ClientLines.All, now)
	own, fits := k.bucket.after(bounds.ClientLines.Kind, now)
	if !fitsAll || !fits {
		l.omit(k, now)
		return 0, false
	}
	l.all, k.bucket = all, own
	omitted, k.omitted = k.omitted, 0
	return omitted, true
}

// omit counts a line that was left out.
func (l *lines) omit(k *kind, now time.Time) {
	k.omitted++
	// A timer of a bubble of testing/synctest that has ended never fires. Then the clock is far from due.
	if l.due.IsZero() || now.Sub(l.due).Abs() > 2*sayAfter {
		l.due = now.Add(sayAfter)
		time.AfterFunc(sayAfter, l.flush)
	}
}

// flush says the counts that are outstanding.
func (l *lines) flush() {
	var texts []string
	l.mu.Lock()
	l.due = time.Time{}
	for format, k := range l.kinds {
		if k.omitted > 0 {
			texts = append(texts, fmt.Sprintf("%d lines were left out of the log, each like this: %s", k.omitted, format))
			k.omitted = 0
		}
	}
	l.mu.Unlock()
	for _, text := range texts {
		l.severity.write(l.component, text, 1)
	}
}

func (l *lines) kindOf(format string) *kind {
	if l.kinds[format] == nil && len(l.kinds) >= maxKinds {
		format = otherKinds
	}
	k := l.kinds[format]
	if k == nil {
		k = new(kind)
		l.kinds[format] = k
	}
	return k
}

// bucket is how much of a bounds.Rate was used, as the time when all of that has come back.
type bucket struct{ full time.Time }

// after returns the bucket after one more, and whether that fits.
func (b bucket) after(r bounds.Rate, now time.Time) (after bucket, fits bool) {
	each := float64(time.Second) / r.PerSecond
	burst := time.Duration(r.Burst * each)
	if used := b.full.Sub(now); used < 0 || used > burst { // more if the clock of a bubble of testing/synctest has ended
		b.full = now
	}
	b.full = b.full.Add(time.Duration(each))
	return b, b.full.Sub(now) <= burst
}
