// Package repeatlog logs what a client can make the server say as often as it likes: a NACK that it
// sends again and again, a stream that it opens in a loop. What is said for the first time is logged
// at once and whole; repetitions are counted, and told as one line at growing intervals.
//
// What is remembered is bounded, whatever clients do.
package repeatlog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// sweepEvery is how often the counts are looked at while there are any.
	sweepEvery = time.Second
	// firstWait is how long repetitions are counted before they are told, and
	// longestWait what that grows to, doubled each time.
	firstWait, longestWait = time.Second, 10 * time.Minute
	// maxTexts bounds the texts that are told apart of one client and subject. What
	// it says beyond them is counted together.
	maxTexts = 8
	// maxEvents bounds what is remembered of all clients. What is said beyond it is
	// counted by message.
	maxEvents = 4096
	// maxKept bounds how much of a string is kept for the line with the count, in
	// bytes.
	maxKept = 256
)

// Event is something to log.
type Event struct {
	Level   slog.Level
	Message string
	// Client and Subject say who caused it and what it is about, for instance a node
	// and a type of resource. They are not logged, but decide with Message and Text
	// what is a repetition.
	Client, Subject string
	// Text is what was said, logged as "error"; it may be empty.
	Text string
	// Attrs are logged too. They may differ from repetition to repetition; the line
	// with the count has the last ones.
	Attrs []slog.Attr
}

// attrs are what is logged of the event.
func (e *Event) attrs() []slog.Attr {
	if e.Text == "" {
		return e.Attrs
	}
	return append(slices.Clip(e.Attrs), slog.String("error", e.Text))
}

// short returns the event with its strings cut, to be kept.
func (e *Event) short() Event {
	s := Event{Level: e.Level, Message: e.Message, Text: cut(e.Text), Attrs: slices.Clone(e.Attrs)}
	for i, a := range s.Attrs {
		if a.Value.Kind() == slog.KindString {
			s.Attrs[i].Value = slog.StringValue(cut(a.Value.String()))
		}
	}
	return s
}

func cut(text string) string {
	if len(text) <= maxKept {
		return text
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(text[:maxKept], ""), len(text))
}

// hash identifies a list of strings, of any length.
type hash [sha256.Size]byte

func hashOf(parts ...string) hash {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hash(h.Sum(nil))
}

// Log is a log of events. It is safe for concurrent use.
type Log struct {
	log *slog.Logger

	// telling lets one tell run at a time; it is locked before mu.
	telling sync.Mutex

	mu     sync.Mutex
	counts map[hash]*count
	// texts counts the counts of each client and subject.
	texts map[hash]int
	// began numbers the counts.
	began uint64
	// sweeper runs while there are counts; nil if there are none.
	sweeper *time.Timer
	closed  bool
}

// count is of the repetitions of one event.
type count struct {
	began uint64
	of    hash
	// more is how many there were since the last line, and last the last of them.
	more int
	last Event
	// next is when the next line may be logged, wait after the one before.
	next time.Time
	wait time.Duration
}

// New returns a Log over a log. Close ends it.
func New(log *slog.Logger) *Log {
	return &Log{log: log, counts: map[hash]*count{}, texts: map[hash]int{}}
}

// Add logs an event, or counts it if it is a repetition.
func (l *Log) Add(e Event) {
	if l.isNew(&e) {
		l.log.LogAttrs(context.Background(), e.Level, e.Message, e.attrs()...)
	}
}

// isNew counts an event, and says whether it is the first of its kind.
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
		c.more++
		c.last = e.short()
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

// sweep tells the counts that are due, and forgets what was not repeated.
func (l *Log) sweep() {
	now := time.Now()
	l.tell(func(c *count) bool { return !now.Before(c.next) })
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

// tell logs those counts that are due, in the order in which they began.
func (l *Log) tell(due func(*count) bool) {
	l.telling.Lock()
	defer l.telling.Unlock()
	var told []count
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
		told = append(told, *c)
		c.more = 0
		c.wait = min(2*c.wait, longestWait)
		c.next = time.Now().Add(c.wait)
	}
	l.mu.Unlock()
	slices.SortFunc(told, func(a, b count) int { return cmp.Compare(a.began, b.began) })
	for _, c := range told {
		l.log.LogAttrs(context.Background(), c.last.Level, c.last.Message, append(c.last.attrs(), slog.Int("repeated", c.more))...)
	}
}

// Close tells what was counted and not told yet. What is added afterwards is logged
// as it comes.
func (l *Log) Close() {
	l.mu.Lock()
	l.closed = true
	if l.sweeper != nil {
		l.sweeper.Stop()
	}
	l.mu.Unlock()
	l.tell(func(*count) bool { return true })
}
