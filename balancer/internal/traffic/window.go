package traffic

import (
	"sync/atomic"
	"time"
)

// slots is into how many parts a Window divides its interval.
const slots = 16

// Window counts the RPCs that started within the last interval, up to a 16th of it more. It takes no
// lock. A nil Window counts nothing.
type Window struct {
	interval, slot time.Duration
	// counts has, for a slot, its number since the Unix epoch, of which 32 bits are enough, and how
	// many RPCs started in it.
	counts [slots + 1]atomic.Uint64
}

// Window returns the Window of an interval, or nil if that is 0. Those who share c share the
// Window, unless they differ about the interval: the last one has a new Window then.
func (c *Counter) Window(interval time.Duration) *Window {
	if interval <= 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.window == nil || c.window.interval != interval {
		c.window = &Window{interval: interval, slot: max(interval/slots, 1)}
	}
	return c.window
}

func (w *Window) now() uint64 { return uint64(time.Now().UnixNano()) / uint64(w.slot) & 0xffffffff }

// Count counts an RPC that starts now.
func (w *Window) Count() {
	if w == nil {
		return
	}
	now := w.now()
	count := &w.counts[now%uint64(len(w.counts))]
	for {
		v := count.Load()
		next := v + 1
		if v>>32 != now {
			next = now<<32 | 1
		}
		if count.CompareAndSwap(v, next) {
			return
		}
	}
}

// count returns how many RPCs started within the interval.
func (w *Window) count() (n int64) {
	now := w.now()
	for i := range w.counts {
		if v := w.counts[i].Load(); now-v>>32 <= slots {
			n += int64(v & 0xffffffff)
		}
	}
	return n
}
