// Package repeatlog limits the lines of a log that clients can cause at any rate, such as repeated NACKs, or streams
// opened in a loop. The first of several equal lines is logged at once, and its repetitions are counted: the line comes
// again with "repeated", their number, at growing intervals. Lines that clients make different, by nodes, types or texts
// that they invent, are limited for each host and in all, so that no hosts use up the lines of others, and so are other
// lines for each message; what is left out of a message is counted, and said. Memory is bounded, whatever clients do.
package repeatlog

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dynxds/dynxds/internal/bounds"
)

const (
	// firstWait is the first interval between a line and its repetition. It doubles each time, up to longestWait.
	firstWait, longestWait = time.Second, 10 * time.Minute
	// sayAfter is how long lines that were left out are counted before that is said.
	sayAfter = 10 * time.Second
	// maxLimiters bounds the hosts and messages that have limits of their own. Others share one.
	maxLimiters = 1024
)

// cause is the value of an attribute that handlers do not log, as it is a group without members.
type cause struct{ host, same string }

func (cause) LogValue() slog.Value { return slog.GroupValue() }

// By returns an attribute for a line that a client at a host has caused. Lines with one message are repetitions if they
// are the same in the host and these texts, whatever their other attributes are. It is not logged.
func By(host string, same ...string) slog.Attr {
	return slog.Any("by", cause{host, strings.Join(append(same, host), "\x00")})
}

// causeOf returns what By gave a line.
func causeOf(r slog.Record) (by cause, ok bool) {
	r.Attrs(func(a slog.Attr) bool {
		by, ok = a.Value.Any().(cause)
		return !ok
	})
	return by, ok
}

// Handler passes the lines to another handler that its limits allow: [bounds.HostLines] and [bounds.AllHostLines] for those
// with [By], and [bounds.OtherLines] for each message of others.
type Handler struct {
	slog.Handler
	*lines
}

// lines are the limits of a Handler and of those that derive from it, and what was counted.
type lines struct {
	root slog.Handler

	mu      sync.Mutex
	seen    map[string]*seen         // by message and cause
	limits  map[string]*rate.Limiter // by host, or by message for lines that no client caused
	all     *rate.Limiter            // for lines that clients caused
	leftOut map[string]int           // by message
	said    time.Time                // when leftOut was
	timer   *time.Timer              // nil: nothing is counted
}

// seen is a line that clients cause.
type seen struct {
	to       slog.Handler
	repeated slog.Record // the first of the repetitions that were not logged
	times    int
	next     time.Time
	wait     time.Duration
}

// NewHandler returns a Handler over another one. [Flush] says what it has counted.
func NewHandler(inner slog.Handler) *Handler {
	return &Handler{inner, &lines{
		root: inner, all: limiter(bounds.AllHostLines),
		seen: map[string]*seen{}, limits: map[string]*rate.Limiter{}, leftOut: map[string]int{},
	}}
}

func limiter(of bounds.Rate) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(of.PerSecond), int(of.Burst))
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{h.Handler.WithAttrs(attrs), h.lines}
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{h.Handler.WithGroup(name), h.lines}
}

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if !h.allow(h.Handler, r) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// allow reports whether a line may be logged now. If not, it counts the line.
func (l *lines) allow(to slog.Handler, r slog.Record) bool {
	by, caused := causeOf(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer == nil {
		l.said = time.Now()
		l.timer = time.AfterFunc(firstWait, l.tick)
	}
	key := r.Message + "\x00" + by.same
	if of := l.seen[key]; caused && of != nil {
		if of.times++; of.times == 1 {
			of.repeated = r.Clone()
		}
		return false
	}
	if !caused && l.limit(r.Message, bounds.OtherLines).Allow() {
		return true
	}
	if caused && l.allowHost(by.host) {
		l.seen[key] = &seen{to: to, next: time.Now().Add(firstWait), wait: firstWait}
		return true
	}
	l.leftOut[r.Message]++
	return false
}

// allowHost reports whether a line that a client at a host has caused may be logged now. The more of its own budget a host
// has used, the more has to be left of the budget of all, up to half: hosts that log a lot share that half, and leave the other
// one to hosts that log little.
func (l *lines) allowHost(host string) bool {
	own := l.limit("host "+host, bounds.HostLines)
	used := 1 - own.Tokens()/bounds.HostLines.Burst
	return l.all.Tokens() >= max(1, used*bounds.AllHostLines.Burst/2) && own.Allow() && l.all.Allow()
}

func (l *lines) limit(key string, of bounds.Rate) *rate.Limiter {
	if l.limits[key] == nil && len(l.limits) >= maxLimiters {
		key = ""
	}
	if l.limits[key] == nil {
		l.limits[key] = limiter(of)
	}
	return l.limits[key]
}

// tick says what is due, until nothing is counted any more.
func (l *lines) tick() {
	l.say(false)
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.limits, func(_ string, of *rate.Limiter) bool { return of.Tokens() >= float64(of.Burst()) })
	if len(l.seen)+len(l.limits)+len(l.leftOut) == 0 {
		l.timer = nil
		return
	}
	l.timer.Reset(firstWait)
}

// say logs the repetitions that are due, and what was left out if that is due, or all of it.
func (l *lines) say(all bool) {
	now := time.Now()
	var again []seen
	leftOut := map[string]int{}
	l.mu.Lock()
	for key, of := range l.seen {
		by, _ := causeOf(of.repeated)
		switch {
		case !all && now.Before(of.next):
			continue
		case of.times == 0:
			delete(l.seen, key)
			continue
		case l.allowHost(by.host):
			again = append(again, *of)
		default:
			l.leftOut[of.repeated.Message] += of.times
		}
		of.times, of.wait = 0, min(2*of.wait, longestWait)
		of.next = now.Add(of.wait)
	}
	if all || now.Sub(l.said) >= sayAfter {
		l.said, leftOut, l.leftOut = now, l.leftOut, leftOut
	}
	l.mu.Unlock()
	for _, of := range again {
		of.repeated.AddAttrs(slog.Int("repeated", of.times))
		_ = of.to.Handle(context.Background(), of.repeated)
	}
	for message, n := range leftOut {
		slog.New(l.root).Warn("log lines suppressed", "message", message, "left_out", n)
	}
}

// Flush has a log with a [Handler] say now what it has counted, as at the end of a process.
func Flush(log *slog.Logger) {
	if h, ok := log.Handler().(*Handler); ok {
		h.say(true)
	}
}

// CutAttr is for slog.HandlerOptions.ReplaceAttr: it cuts texts, which clients may have chosen, to bounds.LogText.
func CutAttr(_ []string, a slog.Attr) slog.Attr {
	switch value := a.Value.Any().(type) {
	case string:
		a.Value = slog.StringValue(Cut(value, bounds.LogText))
	case error, fmt.Stringer, []string:
		if text := fmt.Sprint(value); len(text) > bounds.LogText {
			a.Value = slog.StringValue(Cut(text, bounds.LogText))
		}
	}
	return a
}

// Cut returns a text of about limit bytes at most, as it is if it is short: handlers make it printable.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return bounds.Text(text, limit)
}
