package repeatlog

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dynxds/dynxds/internal/bounds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a Log and the lines that it wrote.
type recorder struct {
	*Log
	handler *Handler
	mu      sync.Mutex
	text    bytes.Buffer
}

func record(t *testing.T) *recorder {
	r := new(recorder)
	r.handler = NewHandler(slog.NewTextHandler(r, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	r.Log = New(slog.New(r.handler))
	t.Cleanup(r.Close)
	return r
}

func (r *recorder) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(line)
}

func (r *recorder) lines() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.text.String(), "\n")
}

// since returns the lines since the last call.
func (r *recorder) since() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := r.text.String()
	r.text.Reset()
	return text
}

// remembered returns how much is.
func (r *recorder) remembered() int {
	r.Log.mu.Lock()
	defer r.Log.mu.Unlock()
	return len(r.counts) + len(r.texts)
}

// wants compares the lines since the last call.
func (r *recorder) wants(t *testing.T, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	got := strings.Split(strings.TrimSuffix(r.text.String(), "\n"), "\n")
	if r.text.Len() == 0 {
		got = nil
	}
	r.text.Reset()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func nack(client, text string, attrs ...slog.Attr) Event {
	return Event{Message: "NACK", Client: client, Subject: "rds", Text: text, Attrs: attrs}
}

// An event is logged once; the number of its repetitions is logged at intervals that double.
// After a pause, the next one is logged at once.
func TestRepetitionsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		for range 10_000 {
			r.Add(nack("a", "bad"))
		}
		r.wants(t, `msg=NACK error=bad`)
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		wait(time.Second)
		r.wants(t, `msg=NACK error=bad repeated=9999`)
		// One each 500 ms from then on.
		for range 7 * 2 {
			r.Add(nack("a", "bad"))
			wait(500 * time.Millisecond)
		}
		r.wants(t, `msg=NACK error=bad repeated=4`, `msg=NACK error=bad repeated=8`)
		wait(20 * time.Second)
		r.wants(t, `msg=NACK error=bad repeated=2`)
		wait(time.Hour)
		r.Add(nack("a", "bad"))
		r.wants(t, `msg=NACK error=bad`)
		r.Close()
		r.wants(t)
		if n := r.remembered(); n > 0 {
			t.Errorf("%d events and texts are left", n)
		}
	})
}

func TestEventsAreDistinguished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		other := nack("a", "bad")
		other.Subject = "cds"
		for range 2 {
			r.Add(nack("a", "bad"))
			r.Add(nack("b", "bad"))
			r.Add(nack("a", "worse"))
			r.Add(other)
		}
		r.wants(t, `msg=NACK error=bad`, `msg=NACK error=bad`, `msg=NACK error=worse`, `msg=NACK error=bad`)
		r.Close()
		r.wants(t, `msg=NACK error=bad repeated=1`, `msg=NACK error=bad repeated=1`,
			`msg=NACK error=worse repeated=1`, `msg=NACK error=bad repeated=1`)
		r.Add(nack("a", "late"))
		r.wants(t, `msg=NACK error=late`)
	})
}

// A line has no more than about 2 KiB, whatever clients send, and says how long the texts are.
func TestLinesAreShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		long := strings.Repeat("x", 1<<20)
		for version := range 3 {
			r.Add(nack("a", long, slog.Int("version", version), slog.String("node", long)))
		}
		node, text := bounds.Text(long, bounds.LogName), bounds.Text(long, bounds.ErrorText)
		r.wants(t, fmt.Sprintf(`msg=NACK version=0 node=%q error=%q`, node, text))
		r.Close()
		r.wants(t, fmt.Sprintf(`msg=NACK version=1 node=%q error=%q repeated=2`, node, text))
		if line := len(node) + len(text); line > bounds.LogText || !strings.Contains(text, "(1048576 bytes, sha256 ") {
			t.Errorf("a line has %d bytes: %s", line, text)
		}
	})
}

func TestMemoryAndLinesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		for i := range 10_000 {
			r.Add(nack("a", fmt.Sprint(i)))
		}
		if lines := r.lines(); lines != maxTexts+1 {
			t.Errorf("one client made %d lines, want %d", lines, maxTexts+1)
		}
		for i := range 10_000 {
			r.Add(nack(fmt.Sprint(i), "bad"))
		}
		if lines, n := r.lines(), r.remembered(); lines != int(bounds.ServerLines.Kind.Burst) || n > 2*(maxEvents+1) {
			t.Errorf("%d lines, and %d events and texts are remembered; want %d at most", lines, n, 2*(maxEvents+1))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := r.remembered(); n > 0 {
			t.Errorf("%d events and texts are left after an hour", n)
		}
	})
}

// A host that invents nodes, types and texts has its share of the lines, and all hosts together have the budget
// of the process, which all Logs share; the rest is counted.
func TestBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		second := New(slog.New(r.handler))
		defer second.Close()
		const seconds, each = 20, 500
		invent := func(host string, n int) {
			for i := range n {
				text := fmt.Sprint("node ", i, " of ", time.Now().UnixNano(), " at ", host)
				r.Add(Event{Message: "NACK", Client: text, Peer: host, Text: text})
				second.Add(Event{Message: "end", Client: text, Peer: host, Subject: text})
			}
		}
		for range seconds {
			invent("hostile", each)
			time.Sleep(time.Second)
		}
		peer := bounds.ServerLines.Peer
		if lines, most := r.lines(), 2*(int(peer.Burst)+(seconds+1)*int(peer.PerSecond)); lines > most || lines < most/2 {
			t.Errorf("one host made %d lines, want %d", lines, most)
		}
		r.Add(Event{Message: "NACK", Client: "good", Peer: "good", Text: "honest"})
		if text := r.since(); !strings.Contains(text, "error=honest") || !strings.Contains(text, "left_out=") {
			t.Errorf("another host is not heard, or nothing is said to be left out:\n%s", text)
		}
		for i := range 1000 {
			invent(fmt.Sprint("host ", i), 10)
		}
		if lines, all := r.lines(), int(bounds.ServerLines.All.Burst); lines > all {
			t.Errorf("all hosts made %d lines, want %d", lines, all)
		}
		r.since()
		time.Sleep(time.Minute)
		synctest.Wait()
		if text := r.since(); !strings.Contains(text, "left_out=") {
			t.Errorf("the log does not say how many lines were left out:\n%s", text)
		}
	})
}

// The handler cuts what others log, and has a budget for each message.
func TestHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		long := strings.Repeat("x", 1<<20)
		log := slog.New(r.handler).With("node", long)
		log.Warn("a", "error", errors.New(long), slog.Group("g", "text", long), "list", []string{long}, "n", 7)
		if text := r.since(); len(text) > 5*(bounds.LogText+100) || strings.Count(text, "(1048576 bytes, sha256 ") != 3 || !strings.Contains(text, " n=7") {
			t.Errorf("the line has %d bytes: %.300s", len(text), text)
		}
		log = slog.New(r.handler)
		for range 10_000 {
			log.Error("fault")
		}
		if lines := r.lines(); lines != int(bounds.OtherLines.Kind.Burst) {
			t.Errorf("%d lines of one message", lines)
		}
		log.Info("b")
		r.since()
		time.Sleep(time.Minute)
		synctest.Wait()
		if text := r.since(); !strings.Contains(text, "message=fault left_out=9500") {
			t.Errorf("the log says %q", text)
		}
	})
}
