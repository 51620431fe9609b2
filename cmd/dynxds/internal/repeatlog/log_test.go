package repeatlog

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a Log and the lines that it wrote.
type recorder struct {
	*Log
	mu   sync.Mutex
	text bytes.Buffer
}

func record(t *testing.T) *recorder {
	r := new(recorder)
	r.Log = New(slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		},
	})))
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

// A long text is logged whole, and kept in part; the line with the count has the last
// attributes.
func TestLongTextsAreLoggedWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		long := strings.Repeat("x", 1<<20)
		for version := range 3 {
			r.Add(nack("a", long, slog.Int("version", version), slog.String("node", long)))
		}
		r.wants(t, fmt.Sprintf(`msg=NACK version=0 node=%s error=%s`, long, long))
		r.Close()
		part := fmt.Sprintf(`"%s... (1048576 bytes)"`, long[:maxKept])
		r.wants(t, fmt.Sprintf(`msg=NACK version=2 node=%s error=%s repeated=2`, part, part))
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
		if lines, n := r.lines(), r.remembered(); lines > maxEvents+1 || n > 2*(maxEvents+1) {
			t.Errorf("%d lines, and %d events and texts are remembered; want %d at most", lines, n, 2*(maxEvents+1))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := r.remembered(); n > 0 {
			t.Errorf("%d events and texts are left after an hour", n)
		}
	})
}
