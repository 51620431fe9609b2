package traffic_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynxds/dynxds/balancer/internal/traffic"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

// TestScript has what Counters say of RPCs. The file in testdata says what the steps are.
func TestScript(t *testing.T) {
	golden.Scripts(t, "testdata/*.txt", 0, func(t testing.TB) func(string) string {
		return (&script{t, map[string]*traffic.Counter{}, nil}).step
	})
}

// script has Counters by the names of their users.
type script struct {
	testing.TB
	users  map[string]*traffic.Counter
	window *traffic.Window
}

func (s *script) step(line string) string {
	words := strings.Fields(line)
	c := s.users[words[1]]
	n := func(i int) (n int) {
		n, err := strconv.Atoi(words[i])
		xdstest.NoError(s, err)
		return n
	}
	interval := func(i int) time.Duration {
		d, err := time.ParseDuration(words[i])
		xdstest.NoError(s, err)
		return d
	}
	switch words[0] {
	case "use":
		s.users[words[1]] = traffic.Use(traffic.Key{Cluster: s.Name(), Service: words[2]})
	case "start":
		started := 0
		for range n(2) {
			if c.Start(uint32(n(3))) {
				started++
			}
		}
		return fmt.Sprint(started)
	case "end":
		for range n(2) {
			c.End()
		}
	case "retries":
		percent, err := strconv.ParseFloat(words[3], 64)
		xdstest.NoError(s, err)
		start := func() bool { return c.StartRetry(uint32(n(2)), percent, s.window) }
		retries := 0
		for start() {
			retries++
		}
		for range retries {
			if c.EndRetry(); !start() {
				s.Error("no retry after the end of another")
			}
		}
		for range retries {
			c.EndRetry()
		}
		return fmt.Sprint(retries)
	case "report":
		return fmt.Sprint(c.InFlight(), " in flight")
	case "window":
		before := s.window
		if s.window = c.Window(interval(2)); s.window != before {
			return "new"
		}
	case "count":
		var all sync.WaitGroup
		for range n(1) {
			all.Go(s.window.Count)
		}
		all.Wait()
	case "wait":
		time.Sleep(interval(1)) // of the bubble
	default:
		s.Fatalf("what is %q?", line)
	}
	return ""
}
