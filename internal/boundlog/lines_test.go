package boundlog

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// said returns how many lines the log says were left out, by kind.
func (r *recorder) said(t *testing.T) map[string]int {
	said := make(map[string]int)
	for _, line := range r.take() {
		omitted, kind, _ := strings.Cut(strings.TrimPrefix(line, "W "), " lines were left out of the log, each like this: ")
		n, err := strconv.Atoi(omitted)
		if err != nil {
			t.Errorf("the log says %q", line)
		}
		said[kind] += n
	}
	return said
}

// flood asks for n lines, and returns how many may be logged and how many these say were left out.
func flood(l *Logger, n int, kind string) (logged, omitted int) {
	for range n {
		if left, ok := l.lines[warning].take(kind); ok {
			logged, omitted = logged+1, omitted+left
		}
	}
	return logged, omitted
}

// A kind has its burst and its rate. Its next line, or a line after a while, says how many were left out.
func TestLinesOfAKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, r := record()
		if logged, omitted := flood(l, 1000, "a"); logged != 20 || omitted != 0 {
			t.Errorf("%d lines at once, which say %d", logged, omitted)
		}
		time.Sleep(time.Second)
		if logged, omitted := flood(l, 10, "a"); logged != 1 || omitted != 980 {
			t.Errorf("%d lines after a second, which say %d", logged, omitted)
		}
		if logged, _ := flood(l, 1, "b"); logged != 1 {
			t.Error("another kind has no line")
		}
		time.Sleep(sayAfter)
		synctest.Wait()
		if said := r.said(t); len(said) != 1 || said["a"] != 9 {
			t.Errorf("said %v", said)
		}
		time.Sleep(time.Hour)
		if logged, omitted := flood(l, 20, "a"); logged != 20 || omitted != 0 {
			t.Errorf("%d lines after an hour, which say %d", logged, omitted)
		}
	})
}

// All lines together are limited, whatever kinds there are.
func TestLinesOfManyKinds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, r := record()
		logged, asked := 0, 0
		for i := range 10_000 {
			n, _ := flood(l, 1, fmt.Sprint("kind ", i))
			logged, asked = logged+n, asked+1
		}
		if logged != 100 {
			t.Errorf("all together have %d lines", logged)
		}
		time.Sleep(sayAfter)
		synctest.Wait()
		omitted, said := 0, r.said(t)
		for _, n := range said {
			omitted += n
		}
		if want := asked - logged; omitted != want || len(said) > maxKinds+1 {
			t.Errorf("%d lines of %d kinds were said to be left out, want %d", omitted, len(said), want)
		}
		if n := len(l.lines[warning].kinds); n > maxKinds+1 {
			t.Errorf("%d kinds are remembered", n)
		}
	})
}

// A budget that bubbles share goes on when a bubble, with its clock and its timers, has ended.
func TestLinesAcrossBubbles(t *testing.T) {
	t.Parallel()
	l, r := record()
	flood(l, 23, "a")
	for i := range 2 {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(i+1) * time.Minute)
			if logged, _ := flood(l, 23, "a"); logged != 20 {
				t.Errorf("%d lines in a bubble", logged)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		flood(l, 23, "a")
		time.Sleep(sayAfter)
		synctest.Wait()
		if said := r.said(t); said["a"] != 3 {
			t.Errorf("said %v", said)
		}
	})
}
