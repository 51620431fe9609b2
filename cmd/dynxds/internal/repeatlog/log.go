// Package repeatlog logs events that a client can cause at any rate, such as repeated NACKs or streams
// opened in a loop, within a budget of lines and bytes. The first of several equal events is logged at once;
// repetitions are counted, and their number is logged at growing intervals. Events that clients make different,
// by nodes, types or texts that they invent, are limited by the budget of the process
// (bounds.ServerLines), of which no host has more than a share: lines beyond it are counted, and the count is
// logged. A text of a client is cut, with its length and hash. Memory is bounded, whatever clients do.
package repeatlog

import (
	"cmp"
	"context"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dynxds/dynxds/internal/bounds"
)

const (
	// sweepEvery is the interval of checks for counts that are due.
	sweepEvery = time.Second
	// firstWait is the first interval of lines with a count. It doubles each time, up to
	// longestWait.
	firstWait, longestWait = time.Second, 10 * time.Minute
	// maxTexts bounds the texts that are distinguished per client and subject. Others are
	// counted together.
	maxTexts = 8
	// maxEvents bounds the counts of all clients. Further events are counted by message.
	maxEvents = 4096
)

// Event is something to log.
type Event struct {
	Level   slog.Level
	Message string
	// Client and Subject are the cause and the subject, for instance a node and a type of
	// resource. They are not logged; events with equal Message, Client, Subject and Text are
	// repetitions.
	Client, Subject string
	// Peer is the host of the client, which has a share of the lines. It is not logged. It may be empty.
	Peer string
	// Text is logged as "error"; it may be empty.
	Text string
	// Attrs are logged too. They may differ among repetitions; the line with the count has those of the
	// first of these.
	Attrs []slog.Attr
}

// attrs returns the attributes to log.
func (e *Event) attrs() []slog.Attr {
	if e.Text == "" {
		return e.Attrs
	}
	return append(slices.Clip(e.Attrs), slog.String("error", e.Text))
}

// short returns a copy to log and to keep, with its strings cut: a line has about bounds.LogText bytes.
func (e *Event) short() Event {
	s := Event{Level: e.Level, Message: e.Message, Peer: e.Peer, Text: cut(e.Text, bounds.ErrorText), Attrs: slices.Clone(e.Attrs)}
	for i, a := range s.Attrs {
		if a.Value.Kind() == slog.KindString {
			s.Attrs[i].Value = slog.StringValue(cut(a.Value.String(), bounds.LogName))
		}
	}
	return s
}

// hash identifies a list of strings.
type hash uint64

// seed makes it impossible to choose strings with equal hashes.
var seed = maphash.MakeSeed()

func hashOf(parts ...string) hash {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, part := range parts {
		h.WriteString(part)
		maphash.WriteComparable(&h, len(part))
	}
	return hash(h.Sum64())
}

// Log is a log of events. It is safe for concurrent use.
type Log struct {
	log   *slog.Logger
	lines *bounds.Lines

	// flushing serializes flush; it is locked before mu.
	flushing sync.Mutex

	mu     sync.Mutex
	counts map[hash]*count
	// texts is the number of counts of each client and subject.
	texts map[hash]int
	// began is the sequence number of the last count.
	began uint64
	// sweeper is nil while there are no counts.
	sweeper *time.Timer
	closed  bool
}

// count counts the repetitions of one event.
type count struct {
	began uint64
	of    hash
	// more is the number of repetitions since the last line, and repeated the first of them.
	more     int
	repeated Event
	// next is the earliest time of the next line, wait after the previous one.
	next time.Time
	wait time.Duration
}

// New returns a Log over a log. All Logs over a log with one [Handler] share its budget. Close ends the Log.
func New(log *slog.Logger) *Log {
	h, ok := log.Handler().(*Handler)
	if !ok {
		h = NewHandler(log.Handler())
	}
	return &Log{log: slog.New(h.inner), lines: h.clients, counts: map[hash]*count{}, texts: map[hash]int{}}
}

// Add logs an event, or counts it if it is a repetition or beyond the budget.
func (l *Log) Add(e Event) {
	if !l.log.Enabled(context.Background(), e.Level) || !l.isNew(&e) {
		return
	}
	if omitted, ok := l.lines.Take(e.Message, e.Peer); ok {
		s := e.short()
		l.write(&s, omitted)
	} else {
		l.lines.Omit(e.Message)
	}
}

// write logs an event, and how many lines of its kind were left out before.
func (l *Log) write(e *Event, omitted int, more ...slog.Attr) {
	l.log.LogAttrs(context.Background(), e.Level, e.Message, leftOut(append(e.attrs(), more...), omitted)...)
}

// isNew counts an event, and reports whether it is the first of its kind.
func (l *Log) isNew(e *Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return true
	}
	of := hashOf(e.Message, e.Client, e.Subject)
	id := hashOf(e.Message, e.Client, e.Subject, e.Text)
	if l.counts[id] == nil && l.texts[of] >= maxTexts {
		id = of
	}
	if l.counts[id] == nil && len(l.counts) >= maxEvents {
		id = hashOf(e.Message)
		of = id
	}
	if c := l.counts[id]; c != nil {
		if c.more++; c.more == 1 {
			c.repeated = e.short()
		}
		return false
	}
	l.began++
	l.counts[id] = &count{began: l.began, of: of, next: time.Now().Add(firstWait), wait: firstWait}
	l.texts[of]++
	if l.sweeper == nil {
		l.sweeper = time.AfterFunc(sweepEvery, l.sweep)
	}
	return true
}

// sweep logs the counts that are due, and drops those without repetitions.
func (l *Log) sweep() {
	now := time.Now()
	l.flush(func(c *count) bool { return !now.Before(c.next) })
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
	case len(l.counts) == 0:
		l.sweeper = nil
	default:
		l.sweeper.Reset(sweepEvery)
	}
}

// flush logs the counts that are due, in the order in which they began.
func (l *Log) flush(due func(*count) bool) {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	var ready []count
	l.mu.Lock()
	for id, c := range l.counts {
		if !due(c) {
			continue
		}
		if c.more == 0 {
			delete(l.counts, id)
			if l.texts[c.of]--; l.texts[c.of] == 0 {
				delete(l.texts, c.of)
			}
			continue
		}
		ready = append(ready, *c)
		c.more = 0
		c.wait = min(2*c.wait, longestWait)
		c.next = time.Now().Add(c.wait)
	}
	l.mu.Unlock()
	slices.SortFunc(ready, func(a, b count) int { return cmp.Compare(a.began, b.began) })
	for _, c := range ready {
		if omitted, ok := l.lines.Take(c.repeated.Message, c.repeated.Peer); ok {
			l.write(&c.repeated, omitted, slog.Int("repeated", c.more))
		} else {
			l.lines.Omit(c.repeated.Message)
		}
	}
}

// Close logs the outstanding counts. Events that are added afterwards are logged at once.
func (l *Log) Close() {
	l.mu.Lock()
	l.closed = true
	if l.sweeper != nil {
		l.sweeper.Stop()
	}
	l.mu.Unlock()
	l.flush(func(*count) bool { return true })
	l.lines.Flush()
}
