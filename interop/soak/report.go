package soak

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	// slackGoroutines, slackHeap and the factor heapGrowth bound the growth since the
	// first round.
	slackGoroutines = 20
	slackHeap       = 8 << 20
	heapGrowth      = 1.25
	// rest is the time for a mesh to release what it does not need: longer than the
	// balancer keeps the connections of a removed cluster.
	rest = 2 * time.Second
)

// sample is the size of the process while the mesh has a plain configuration.
type sample struct {
	round, goroutines int
	heap              uint64
}

// figures are what a run counts and measures.
type figures struct {
	rounds int
	// done counts the operations by name.
	done map[string]int
	// settling is the longest time that the mesh took to come to rest.
	settling time.Duration
	samples  []sample
}

// measure goes back to a plain configuration and checks that the process has not
// grown since the first round. No RPCs run meanwhile: on a busy machine their goroutines are many.
func (r *run) measure() {
	r.publish(plain(r.newest.version+1, methods()))
	r.settle()
	for _, c := range r.channels {
		c.stop()
	}
	for _, c := range r.channels {
		c.work.Wait()
	}
	r.sample(r.t)
	for _, c := range r.channels {
		c.resume(r)
	}
}

// sample measures the process, the least of a few times as connections are closing, and
// compares it with the first sample.
func (f *figures) sample(t testing.TB) {
	s := sample{round: f.rounds}
	for end := time.Now().Add(rest); time.Now().Before(end); <-time.After(rest / 10) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if n := runtime.NumGoroutine(); s.goroutines == 0 || n < s.goroutines {
			s.goroutines = n
		}
		if s.heap == 0 || m.HeapAlloc < s.heap {
			s.heap = m.HeapAlloc
		}
	}
	f.samples = append(f.samples, s)
	t.Logf("after %d rounds: %d goroutines, %.1f MiB of heap", s.round, s.goroutines, float64(s.heap)/(1<<20))
	base := f.samples[0]
	if s.goroutines > base.goroutines+slackGoroutines {
		t.Errorf("%d goroutines after %d rounds, %d after the first:\n%s", s.goroutines, s.round, base.goroutines, stacks())
	}
	if float64(s.heap) > float64(base.heap)*heapGrowth+slackHeap {
		t.Errorf("%d bytes of heap after %d rounds, %d after the first", s.heap, s.round, base.heap)
	}
}

func stacks() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}

// report logs what the run did.
func (r *run) report(seed uint64) {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d rounds, %d configurations; settling took %v at most\n",
		seed, r.rounds, r.newest.version, r.settling.Round(time.Millisecond))
	for _, o := range ops {
		fmt.Fprintf(&b, "%7d  %s\n", r.done[o.name], o.name)
	}
	for _, c := range r.channels {
		fmt.Fprintf(&b, "channel %q\n", c.name)
		for _, method := range slices.Sorted(maps.Keys(c.succeeded)) {
			fmt.Fprintf(&b, "%9d RPCs of %s; %d failed as their backend crashed\n", c.succeeded[method], method, c.excused[method])
		}
		fmt.Fprintf(&b, "%9d faults\n", len(c.faults))
	}
	r.t.Log(b.String())
	if r.t.Failed() {
		r.t.Logf("repeat it with: make soak SEED=%d", seed)
	}
}
