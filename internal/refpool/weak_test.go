package refpool

import (
	"runtime"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// A value is there for as long as somebody refers to it, and what nobody does is not kept.
func TestWeak(t *testing.T) {
	t.Parallel()
	var w Weak[int, []int]
	get := func(key int) *[]int { return w.Get(key, func() *[]int { return &[]int{key} }) }
	first := get(0)
	for key := range 10 {
		if get(key); get(0) != first {
			t.Error("the key has another value")
		}
		runtime.GC()
	}
	xdstest.Equal(t, "value", 0, (*first)[0])
	if n := len(w.values); n > 3 {
		t.Errorf("%d values are kept, most of them of no use", n)
	}
	runtime.KeepAlive(first)
}
