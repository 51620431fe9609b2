package quota

import (
	"sync"
	"testing"
)

func TestQuota(t *testing.T) {
	t.Parallel()
	q := New[string]("names", 10)
	if err := q.Take("a", 5); err != nil {
		t.Fatal(err)
	}
	refused := func(peer string, n int64, want string) {
		t.Helper()
		if err := q.Take(peer, n); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	refused("a", 1, "too many names: one peer may have 5")
	refused("b", 3, "too many names for one peer: only 2 of 10 are left for all")
	if err := q.Take("b", 2); err != nil {
		t.Errorf("a peer within both, after refusals: %v", err)
	}
	refused("c", 4, "too many names: all peers together may have 10")
	if q.Used() != 7 {
		t.Errorf("used %d, want 7", q.Used())
	}
	q.Give("a", 5)
	q.Give("b", 1)
	if q.Used() != 1 || len(q.held) != 1 || q.held["b"] != 1 {
		t.Errorf("used %d, held %v, want 1, of b", q.Used(), q.held)
	}
}

func TestQuotaOfOne(t *testing.T) {
	t.Parallel()
	q := New[string]("names", 1)
	if err := q.Take("a", 1); err != nil {
		t.Error(err)
	}
	if q.Take("b", 1) == nil {
		t.Error("a second of one")
	}
}

func TestQuotaFromManyGoroutines(t *testing.T) {
	t.Parallel()
	q := New[int]("names", 50)
	var wg sync.WaitGroup
	for peer := range 8 {
		wg.Go(func() {
			for range 1000 {
				if q.Take(peer, 3) == nil {
					if q.Used() < 3 {
						t.Error("an amount that was taken is not counted")
					}
					q.Give(peer, 3)
				}
			}
		})
	}
	wg.Wait()
	if q.Used() != 0 {
		t.Errorf("%d is still used", q.Used())
	}
}
