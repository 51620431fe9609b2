package bounds

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestText(t *testing.T) {
	t.Parallel()
	if got, want := Text("a\nb\x1b[31m\xff", 100), `a\nb\x1b[31m`+"\uFFFD"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	a, b := strings.Repeat("x", 5000)+"a", strings.Repeat("x", 5000)+"b"
	cut := Text(a, 100)
	if len(cut) > 160 || !strings.Contains(cut, "5001 bytes") {
		t.Errorf("a long text: %q", cut)
	}
	if cut == Text(b, 100) {
		t.Error("two texts that differ beyond the cut look alike")
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("x", ErrorText)
	for name, want := range map[string]string{
		"":          `""`,
		"a\"\x1bé":  `"a\"\x1bé"`,
		whole:       `"` + whole + `"`,
		whole + "y": `"` + whole + `…" (1025 bytes, sha256 1fd11f58)`,
	} {
		if got := Quote(name); got != want {
			t.Errorf("Quote(%.20q) is %s, want %s", name, got, want)
		}
	}
}

// counts is what a Lines said of the lines that it left out.
type counts struct {
	mu   sync.Mutex
	said map[string]int
}

func (c *counts) say(kind string, omitted int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.said == nil {
		c.said = make(map[string]int)
	}
	c.said[kind] += omitted
}

// flood asks for n lines, and returns how many may be logged and how many these say were left out.
func flood(l *Lines, n int, kind string) (logged, omitted int) {
	for range n {
		if left, ok := l.Take(kind); ok {
			logged, omitted = logged+1, omitted+left
		}
	}
	return logged, omitted
}

// A kind has its burst and its rate; what is left out is said by the next line of the kind, or after a while.
func TestLinesOfAKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c counts
		l := NewLines(LineLimits{Kind: Rate{Burst: 20, PerSecond: 1}}, c.say)
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
		if len(c.said) != 1 || c.said["a"] != 9 {
			t.Errorf("said %v", c.said)
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
		var c counts
		l := NewLines(LineLimits{Kind: Rate{50, 5}, All: Rate{100, 20}}, c.say)
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
		omitted := 0
		for _, n := range c.said {
			omitted += n
		}
		if want := asked - logged; omitted != want || len(c.said) > maxLineKinds+1 {
			t.Errorf("%d lines of %d kinds were said to be left out, want %d", omitted, len(c.said), want)
		}
		if len(l.kinds) > maxLineKinds+1 {
			t.Errorf("%d kinds are remembered", len(l.kinds))
		}
	})
}

// A budget that bubbles share goes on when a bubble, with its clock and its timers, has ended.
func TestLinesAcrossBubbles(t *testing.T) {
	t.Parallel()
	var c counts
	l := NewLines(LineLimits{Kind: Rate{1, 1}}, c.say)
	flood(l, 3, "a")
	for i := range 2 {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(i+1) * time.Minute)
			if logged, _ := flood(l, 3, "a"); logged != 1 {
				t.Errorf("%d lines in a bubble", logged)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		flood(l, 3, "a")
		time.Sleep(sayAfter)
		synctest.Wait()
		if c.said["a"] != 2 {
			t.Errorf("said %v", c.said)
		}
	})
}
