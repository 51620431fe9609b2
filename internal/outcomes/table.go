package outcomes

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynxds/dynxds/internal/bounds"
)

const (
	second = time.Second
	// linger is how long counting goes on after the last Look.
	linger = 10 * time.Minute
	// forgetAfter is after how many ticks without an RPC a Counter may make room for another one.
	forgetAfter = 600
)

// maxKinds is how many Counters there are. Tests have fewer.
var maxKinds = bounds.OutcomeKinds

// on says that RPCs are counted. ticks counts the seconds of counting.
var (
	on    atomic.Bool
	ticks atomic.Uint64
)

// table has the Counters in use.
var table struct {
	byKey sync.Map // Key → *Counter

	mu       sync.Mutex
	byTarget map[string][]*Counter // the same; slices only grow, so that they are read without the lock
	size     int
	since    time.Time
	until    time.Time // counting ends; zero: never
	// chain identifies the timers that tick, of which the last has fired at ticked.
	chain  uint64
	ticked time.Time
	// begun is the value of ticks when counting began.
	begun uint64
}

// Look is called by those who are about to read, or to show, what is counted. Counting begins if it is off, and goes
// on for ten minutes. It returns since when RPCs are counted.
func Look() (since time.Time) { return turnOn(time.Now().Add(linger)) }

// Keep has RPCs counted for good.
func Keep() { turnOn(time.Time{}) }

func turnOn(until time.Time) time.Time {
	table.mu.Lock()
	defer table.mu.Unlock()
	before := on.Load()
	if !before || !table.until.IsZero() {
		table.until = until
	}
	now := time.Now()
	if !before {
		table.since, table.begun = now, ticks.Load()
		on.Store(true)
	}
	// A chain that has not ticked for long has ended: with the test whose time it followed, for example.
	if late := now.Sub(table.ticked); !before || late > 3*second || late < 0 {
		table.chain++
		table.ticked = now
		startTimer(table.chain)
	}
	return table.since
}

func startTimer(chain uint64) { time.AfterFunc(second, func() { tick(chain) }) }

// tick takes in what was counted in the last second.
func tick(chain uint64) {
	table.mu.Lock()
	defer table.mu.Unlock()
	if chain != table.chain {
		return
	}
	now := time.Now()
	if !table.until.IsZero() && now.After(table.until) {
		on.Store(false)
		for k := range table.byKey.Range {
			drop(k)
		}
		table.byTarget, table.size = nil, 0
		return
	}
	table.ticked = now
	n := ticks.Add(1)
	forget := table.size > maxKinds/2 && n%60 == 0
	forgotten := 0
	for k, v := range table.byKey.Range {
		c := v.(*Counter)
		c.take(n, now)
		if forget && n-c.history.active > forgetAfter && c.inFlight() == 0 {
			drop(k)
			forgotten++
		}
	}
	if forgotten > 0 {
		// The others may get Counters of their own again.
		if drop(others) {
			forgotten++
		}
		table.size -= forgotten
		table.byTarget = make(map[string][]*Counter)
		for _, v := range table.byKey.Range {
			c := v.(*Counter)
			table.byTarget[c.key.Target] = append(table.byTarget[c.key.Target], c)
		}
	}
	startTimer(chain)
}

// drop removes a Counter, and reports whether there is one.
func drop(key any) bool {
	c, ok := table.byKey.LoadAndDelete(key)
	if ok {
		c.(*Counter).gone.Store(true)
	}
	return ok
}

// others is the Key of those for which there is no room.
var others = Key{Others, Others, Others}

// Find returns the Counter of a Key, a new one if there is none and there is room for one. Those who count keep it
// until it is gone, as Find is no part of the way of every RPC.
func Find(k Key) *Counter {
	if c, ok := table.byKey.Load(k); ok {
		return c.(*Counter)
	}
	table.mu.Lock()
	defer table.mu.Unlock()
	if table.size >= maxKinds {
		k = others
	}
	if c, ok := table.byKey.Load(k); ok {
		return c.(*Counter)
	}
	k = Key{strings.Clone(k.Target), strings.Clone(k.Route), strings.Clone(k.Cluster)}
	c := &Counter{key: k}
	c.history.active = ticks.Load()
	// While nothing is counted the Counter is not kept: an RPC has met the end of counting.
	if !on.Load() {
		c.gone.Store(true)
		return c
	}
	if table.byTarget == nil {
		table.byTarget = make(map[string][]*Counter)
	}
	table.byKey.Store(k, c)
	table.byTarget[k.Target] = append(table.byTarget[k.Target], c)
	table.size++
	return c
}
