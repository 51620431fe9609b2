package refpool

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// value counts how often it is closed.
type value struct{ closed atomic.Int64 }

func (v *value) close() { v.closed.Add(1) }

func made() (*value, func(), error) {
	v := new(value)
	return v, v.close, nil
}

func TestValueLivesFromFirstHolderToLast(t *testing.T) {
	t.Parallel()
	var p Pool[string, *value]
	acquire := func(key string) (*value, func()) {
		v, release, err := p.Acquire(key, made)
		xdstest.NoError(t, err)
		return v, release
	}
	one, releaseOne := acquire("a")
	same, releaseSame := acquire("a")
	other, releaseOther := acquire("b")
	if one != same || one == other {
		t.Errorf("%p and %p for one key, %p for another", one, same, other)
	}
	seen := map[string]*value{}
	p.Each(func(key string, v *value) { seen[key] = v })
	if len(seen) != 2 || seen["a"] != one || seen["b"] != other {
		t.Errorf("Each: %v", seen)
	}
	releaseOne()
	releaseOne() // It counts once.
	if one.closed.Load() != 0 || p.members["a"] == nil {
		t.Error("the value is closed while it has a holder")
	}
	releaseSame()
	if one.closed.Load() != 1 || p.members["a"] != nil {
		t.Errorf("closed %d times after the last release, want once, and in the pool: %t", one.closed.Load(), p.members["a"] != nil)
	}
	fresh, releaseFresh := acquire("a")
	if fresh == one {
		t.Error("a closed value is handed out")
	}
	releaseSame()
	if fresh.closed.Load() != 0 {
		t.Error("a holder of the old value releases the new one")
	}
	releaseFresh()
	releaseOther()
	if len(p.members) != 0 {
		t.Errorf("%d values are left", len(p.members))
	}
}

func TestErrorOfMakeIsReturned(t *testing.T) {
	t.Parallel()
	var p Pool[string, *value]
	want := errors.New("faulty")
	if _, release, err := p.Acquire("a", func() (*value, func(), error) { return nil, nil, want }); err != want || release != nil || p.members["a"] != nil {
		t.Errorf("error %v, kept: %t", err, p.members["a"] != nil)
	}
	_, release, err := p.Acquire("a", made)
	xdstest.NoError(t, err)
	release()
}

// A value may hold that of another key until it is closed.
func TestCloseMayUseThePool(t *testing.T) {
	t.Parallel()
	var p Pool[string, *value]
	inner, releaseInner, err := p.Acquire("inner", made)
	xdstest.NoError(t, err)
	_, release, err := p.Acquire("outer", func() (*value, func(), error) {
		return new(value), func() {
			if p.members["outer"] != nil {
				t.Error("a value is closed while it can be acquired")
			}
			releaseInner()
		}, nil
	})
	xdstest.NoError(t, err)
	release()
	if inner.closed.Load() != 1 {
		t.Error("the inner value is not closed")
	}
}

// No holder ever has a closed value, and each value is closed once.
func TestConcurrentHolders(t *testing.T) {
	t.Parallel()
	var p Pool[int, *value]
	var mu sync.Mutex
	all := map[*value]bool{}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 1000 {
				v, release, err := p.Acquire((i+n)%3, func() (*value, func(), error) {
					v, closeValue, err := made()
					mu.Lock()
					defer mu.Unlock()
					all[v] = true
					return v, closeValue, err
				})
				if err != nil || v.closed.Load() != 0 {
					t.Errorf("a holder has a closed value, %v", err)
				}
				release()
			}
		})
	}
	wg.Wait()
	for v := range all {
		if n := v.closed.Load(); n != 1 {
			t.Fatalf("a value was closed %d times", n)
		}
	}
	if len(p.members) != 0 {
		t.Errorf("%d values are left", len(p.members))
	}
}
