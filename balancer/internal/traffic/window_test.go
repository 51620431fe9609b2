package traffic

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestWindow: Envoy, RetryBudget.budget_interval: "if 10 requests start at the same time, with a specified
// budget_interval of 100ms, all 10 requests will be considered when calculating the retry budget for
// the next 100ms, regardless of if they have completed. All 10 requests will expire after".
func TestWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := Use(Key{Cluster: "window"})
		defer c.Release()
		w := c.Window(100 * time.Millisecond)
		if w != c.Window(100*time.Millisecond) || c.Window(0) != nil {
			t.Error("the Window of an interval is not one")
		}
		retries := func() (n int) {
			for c.StartRetry(0, 50, w) {
				n++
			}
			for range n {
				c.EndRetry()
			}
			return n
		}
		expect := func(when string, want int) {
			t.Helper()
			if got := retries(); got != want {
				t.Errorf("%s: %d retries, want %d", when, got, want)
			}
		}
		expect("no RPC", 0)
		var all sync.WaitGroup
		for range 10 {
			all.Go(w.Count)
		}
		all.Wait()
		expect("10 RPCs", 5)
		time.Sleep(60 * time.Millisecond)
		for range 4 {
			w.Count()
		}
		expect("4 later ones", 7)
		time.Sleep(40 * time.Millisecond)
		expect("100 ms after the first", 7)
		time.Sleep(8 * time.Millisecond)
		expect("a 16th more", 2)
		time.Sleep(time.Hour)
		expect("much later", 0)
		w.Count()
		w.Count()
		expect("again", 1)
		if v := c.Window(time.Second); v == w {
			t.Error("another interval has the same Window")
		}
	})
	var none *Window
	none.Count()
}
