package bounds

import (
	"sync"
	"time"
)

// Rate is how often something may happen: Burst times at once, and PerSecond times a second in the long
// run. The zero value stands for no limit.
type Rate struct {
	Burst, PerSecond float64
}

// LineLimits are the limits of [Lines]: for each kind, and for all lines together.
type LineLimits struct {
	Kind, All Rate
}

// Lines is the budget of the lines of a log that peers can cause. A line has a kind, which the program
// chooses and no peer can invent, such as the format of the line. Lines that the budget does not allow are
// counted by their kind, and the counts are said:
//
//	now    a peer causes 1,000 lines of a kind: the first 20 are logged
//	+1 s   it causes another one, which is logged, and says that 980 lines were left out
//	+10 s  what is left out by then is said in a line of its own
//
// It is safe for concurrent use, and may be shared by bubbles of testing/synctest.
type Lines struct {
	limits LineLimits
	say    func(kind string, omitted int)

	mu    sync.Mutex
	all   bucket
	kinds map[string]*lineKind
	// due is when the counts are said. It is zero if there are none.
	due time.Time
}

type lineKind struct {
	bucket
	omitted int
}

const (
	// maxLineKinds bounds the memory of a Lines. Further kinds share a bucket.
	maxLineKinds = 128
	// otherKinds is the kind of all beyond maxLineKinds.
	otherKinds = "lines of other kinds"
	// sayAfter is how long a count waits for a line of its kind that says it.
	sayAfter = 10 * time.Second
)

// NewLines returns a budget. The lines of a kind that were left out, and that no later line of the kind has
// said, are said by a call of say, which may log a line. It is not called concurrently with itself.
func NewLines(limits LineLimits, say func(kind string, omitted int)) *Lines {
	return &Lines{limits: limits, say: say, kinds: make(map[string]*lineKind)}
}

// Take asks for a line. If ok is true it may be logged, and omitted is how many lines of its kind were left
// out before, which the line has to say unless it is 0. Otherwise it is counted.
func (l *Lines) Take(kind string) (omitted int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	k := l.kind(kind)
	all, fitsAll := l.all.after(l.limits.All, now)
	own, fits := k.bucket.after(l.limits.Kind, now)
	if !fitsAll || !fits {
		l.omit(k, now)
		return 0, false
	}
	l.all, k.bucket = all, own
	omitted, k.omitted = k.omitted, 0
	return omitted, true
}

// omit counts a line that was left out.
func (l *Lines) omit(k *lineKind, now time.Time) {
	k.omitted++
	// A timer of a bubble of testing/synctest that has ended never fires. Then the clock is far from due.
	if l.due.IsZero() || now.Sub(l.due).Abs() > 2*sayAfter {
		l.due = now.Add(sayAfter)
		time.AfterFunc(sayAfter, l.flush)
	}
}

// flush says the counts that are outstanding.
func (l *Lines) flush() {
	type count struct {
		kind    string
		omitted int
	}
	var counts []count
	l.mu.Lock()
	l.due = time.Time{}
	for name, k := range l.kinds {
		if k.omitted > 0 {
			counts = append(counts, count{name, k.omitted})
			k.omitted = 0
		}
	}
	l.mu.Unlock()
	for _, c := range counts {
		l.say(c.kind, c.omitted)
	}
}

func (l *Lines) kind(name string) *lineKind {
	k := l.kinds[name]
	if k == nil && len(l.kinds) >= maxLineKinds {
		name = otherKinds
		k = l.kinds[name]
	}
	if k == nil {
		k = new(lineKind)
		l.kinds[name] = k
	}
	return k
}

// bucket is how much of a Rate was used, as the time when all of that has come back.
type bucket struct{ full time.Time }

// after returns the bucket after one more, and whether that fits.
func (b bucket) after(r Rate, now time.Time) (after bucket, fits bool) {
	if r == (Rate{}) {
		return b, true
	}
	each := float64(time.Second) / r.PerSecond
	burst := time.Duration(r.Burst * each)
	if used := b.full.Sub(now); used < 0 || used > burst { // more if the clock of a bubble of testing/synctest has ended
		b.full = now
	}
	b.full = b.full.Add(time.Duration(each))
	return b, b.full.Sub(now) <= burst
}
