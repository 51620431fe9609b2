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

// recorder is a log with a Handler, and the lines that it wrote.
type recorder struct {
	*slog.Logger
	mu   sync.Mutex
	text bytes.Buffer
}

func record(t *testing.T) *recorder {
	r := new(recorder)
	r.Logger = slog.New(NewHandler(slog.NewTextHandler(r, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return CutAttr(groups, a)
		},
	})))
	t.Cleanup(func() { Flush(r.Logger) })
	return r
}

func (r *recorder) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(line)
}

// since returns the lines since the last call.
func (r *recorder) since() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := r.text.String()
	r.text.Reset()
	return text
}

func (r *recorder) lines() int { return strings.Count(r.since(), "\n") }

// remembered returns how much is.
func (r *recorder) remembered() int {
	l := r.Handler().(*Handler).lines
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen) + len(l.limits) + len(l.leftOut)
}

// wants compares the lines since the last call.
func (r *recorder) wants(t *testing.T, want ...string) {
	t.Helper()
	got := strings.Split(strings.TrimSuffix(r.since(), "\n"), "\n")
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// nack logs a NACK of a client.
func (r *recorder) nack(host, client, text string, attrs ...any) {
	r.Warn("NACK", append(attrs, "error", text, By(host, client, text))...)
}

// A line is logged once; the number of its repetitions is logged at intervals that double. After a pause, the next one is
// logged at once.
func TestRepetitionsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		for range 10_000 {
			r.nack("", "a", "bad")
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
			r.nack("", "a", "bad")
			wait(500 * time.Millisecond)
		}
		r.wants(t, `msg=NACK error=bad repeated=4`, `msg=NACK error=bad repeated=8`)
		wait(20 * time.Second)
		r.wants(t, `msg=NACK error=bad repeated=2`)
		wait(time.Hour)
		r.nack("", "a", "bad")
		r.wants(t, `msg=NACK error=bad`)
		Flush(r.Logger)
		r.wants(t, "")
		wait(time.Hour)
		if n := r.remembered(); n > 0 {
			t.Errorf("%d lines and limits are left", n)
		}
	})
}

// Lines are repetitions if they are the same in message, host and the texts of By. A repetition comes with its attributes,
// and with those of the log that it went to.
func TestLinesAreDistinguished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		for i := range 3 {
			r.nack("x", "a", "bad", "i", i)
			r.nack("x", "b", "bad", "i", i)
			r.nack("y", "a", "bad", "i", i)
			r.nack("x", "a", "worse", "i", i)
			r.With("of", "cds").Warn("other", "i", i, By("x", "a", "bad"))
		}
		r.wants(t, `msg=NACK i=0 error=bad`, `msg=NACK i=0 error=bad`, `msg=NACK i=0 error=bad`,
			`msg=NACK i=0 error=worse`, `msg=other of=cds i=0`)
		time.Sleep(time.Millisecond)
		Flush(r.Logger)
		if text := r.since(); strings.Count(text, "msg=NACK i=1 error=bad repeated=2\n") != 3 ||
			!strings.Contains(text, "msg=NACK i=1 error=worse repeated=2\n") || !strings.Contains(text, "msg=other of=cds i=1 repeated=2\n") {
			t.Errorf("the log has\n%s", text)
		}
	})
}

// A host that invents nodes and texts has its share of the lines, whatever their messages, and all hosts together have the
// budget of the process; the rest is counted, once.
func TestBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		logged, invented := 0, 0
		invent := func(host string, n int) {
			for range n {
				invented++
				text := fmt.Sprint("text ", invented)
				r.nack(host, text, text)
				r.Info("end", By(host, text))
			}
		}
		const seconds, each = 5, 500
		for range seconds {
			invent("hostile", each)
			logged += r.lines()
			time.Sleep(time.Second)
		}
		if most := int(bounds.HostLines.Burst) + seconds*int(bounds.HostLines.PerSecond); logged > most || logged < most/2 {
			t.Errorf("one host made %d lines, want %d", logged, most)
		}
		r.nack("good", "good", "honest")
		r.wants(t, "msg=NACK error=honest")
		for i := range 10_000 {
			invent(fmt.Sprint("host ", i), 1)
		}
		lines := r.lines()
		if most := int(bounds.AllHostLines.Burst); lines > most || lines < most/2 {
			t.Errorf("all hosts made %d lines, want %d", lines, most)
		}
		if n := r.remembered(); n > 2*maxLimiters {
			t.Errorf("%d lines and limits are remembered", n)
		}
		logged += lines
		time.Sleep(time.Hour)
		synctest.Wait()
		leftOut := 0
		for line := range strings.Lines(r.since()) {
			_, count, _ := strings.Cut(strings.TrimSpace(line), "left_out=")
			var n int
			if _, err := fmt.Sscan(count, &n); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			leftOut += n
		}
		if logged+leftOut != 2*invented {
			t.Errorf("%d lines were logged and %d left out, of %d", logged, leftOut, 2*invented)
		}
		if n := r.remembered(); n > 0 {
			t.Errorf("%d lines and limits are left after an hour", n)
		}
	})
}

// However many lines some hosts cause, with repetitions and for as long as they like, the first lines of others are logged, and
// the count of their repetitions is.
func TestOtherHostsHaveTheirShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		const others = 15
		logged, invented := 0, 0
		for second := range 60 {
			for i := range 100 {
				invented++
				for host := range 10 {
					r.nack(fmt.Sprint("hostile ", host), "a", fmt.Sprint("invented ", invented))
					r.nack(fmt.Sprint("hostile ", host), "a", fmt.Sprint("text ", i))
				}
			}
			if second%20 == 0 {
				for host := range others {
					r.nack(fmt.Sprint("host ", host), "b", fmt.Sprint("honest ", second))
					r.nack(fmt.Sprint("host ", host), "b", fmt.Sprint("honest ", second))
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
			text := r.since()
			logged += strings.Count(text, "\n")
			if n := strings.Count(text, "honest"); second%20 == 0 && n < 2*others {
				t.Errorf("second %d: %d lines of %d other hosts, want each and how often it is repeated", second, n, others)
			}
		}
		if most := int(bounds.AllHostLines.Burst) + 61*int(bounds.AllHostLines.PerSecond); logged > most {
			t.Errorf("%d lines were logged, want at most %d", logged, most)
		}
	})
}

// Lines that no client caused have a budget for each message, and are not taken for repetitions.
func TestOtherLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		for range 10_000 {
			r.Error("fault")
		}
		if lines := r.lines(); lines != int(bounds.OtherLines.Burst) {
			t.Errorf("%d lines of one message", lines)
		}
		r.Info("b")
		r.wants(t, "msg=b")
		time.Sleep(time.Minute)
		synctest.Wait()
		r.wants(t, `msg="log lines suppressed" message=fault left_out=9500`)
	})
}

// Texts are cut, with their length and hash.
func TestTextsAreCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := record(t)
		long := strings.Repeat("x", 1<<20)
		r.With("node", long).Warn(long, "error", errors.New(long), slog.Group("g", "text", long), "list", []string{long}, "n", 7)
		if text := r.since(); len(text) > 5*(bounds.LogText+100) || strings.Count(text, "(1048576 bytes, sha256 ") != 4 || !strings.Contains(text, " n=7") {
			t.Errorf("the line has %d bytes: %.300s", len(text), text)
		}
	})
}
