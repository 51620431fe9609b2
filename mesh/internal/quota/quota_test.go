package quota

import (
	"sync"
	"testing"
)

func TestQuota(t *testing.T) {
	t.Parallel()
	q := New("names", 10)
	a, b, c := q.Share(), q.Share(), q.Share()
	if err := a.Take(5); err != nil {
		t.Fatal(err)
	}
	refused := func(s *Share, n int64, want string) {
		t.Helper()
		if err := s.Take(n); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	refused(a, 1, "too many names: one peer may have 5")
	refused(b, 3, "too many names for one peer: only 2 of 10 are left for all")
	if err := b.Take(2); err != nil {
		t.Errorf("a peer within both, after refusals: %v", err)
	}
	refused(c, 4, "too many names: all peers together may have 10")
	if q.Used() != 7 {
		t.Errorf("used %d, want 7", q.Used())
	}
	a.Give(a.Held())
	a.Give(a.Held())
	b.Give(1)
	if q.Used() != 1 || a.Held() != 0 || b.Held() != 1 {
		t.Errorf("used %d, held %d and %d, want 1, 0 and 1", q.Used(), a.Held(), b.Held())
	}
}

func TestQuotaOfOne(t *testing.T) {
	t.Parallel()
	q := New("names", 1)
	a, b := q.Share(), q.Share()
	if err := a.Take(1); err != nil {
		t.Error(err)
	}
	if b.Take(1) == nil {
		t.Error("a second of one")
	}
}

func TestQuotaFromManyGoroutines(t *testing.T) {
	t.Parallel()
	q := New("names", 50)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s := q.Share()
			for range 1000 {
				if s.Take(3) == nil {
					if q.Used() < 3 {
						t.Error("an amount that was taken is not counted")
					}
					s.Give(3)
				}
			}
			s.Give(s.Held())
		})
	}
	wg.Wait()
	if q.Used() != 0 {
		t.Errorf("%d is still used", q.Used())
	}
}
