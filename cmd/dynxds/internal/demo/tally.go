package demo

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// maxFailures bounds the failed RPCs of a step that are kept. Those beyond it are not
// excused.
const maxFailures = 1000

// recorder adds RPCs from any number of goroutines to the tally of the step under way. Its
// memory does not grow with their number.
type recorder struct {
	mesh             *setUp
	mu               sync.Mutex
	tally            *tally // nil before the first step
	answered, failed int    // of all steps
}

// record adds an RPC that has ended.
func (r *recorder) record(ended rpc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ended.err != nil {
		r.failed++
	} else {
		r.answered++
	}
	if r.tally != nil {
		r.tally.record(ended)
	}
}

// begin starts a step. The channel is closed when there are enough RPCs to judge it.
func (r *recorder) begin(expect expectation) (ready <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally = &tally{
		expect: expect, began: time.Now(), ready: make(chan struct{}),
		answered: r.mesh.counts(), spread: r.mesh.counts(), counted: r.mesh.counts(),
	}
	return r.tally.ready
}

// read calls f with the tally of the present step, which f must not keep.
func (r *recorder) read(f func(*tally)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.tally)
}

// phase is the progress of a step's change.
type phase int

const (
	phaseUnseen    phase = iota // no RPC has shown the change
	phaseSpreading              // shown, but not every expected backend has answered since
	phaseCounting               // RPCs that start from now on count
)

// tally counts the RPCs of one step.
type tally struct {
	expect expectation
	began  time.Time
	ready  chan struct{} // closed when there are enough RPCs to judge the step
	judged bool          // ready is closed

	phase phase
	// shown is the end of the first RPC that shows the change, since the begin of
	// counting.
	shown, since time.Time
	// answered are all answered RPCs of the step, spread those since shown, counted those
	// that are judged.
	answered, spread, counted counts
	latencies                 latencies
	strays                    int // counted RPCs that another configuration routed
	firstStray                rpc
	failed                    int
	failures                  []rpc
}

func (t *tally) record(r rpc) {
	if r.err != nil {
		t.failed++
		if len(t.failures) < maxFailures {
			t.failures = append(t.failures, r)
		}
		return
	}
	t.answered.add(r)
	if !r.paced {
		t.latencies.add(r.end.Sub(r.start))
	}
	about := t.expect.isAbout(r)
	switch t.phase {
	case phaseUnseen:
		if about && t.expect.isShownBy(r) {
			t.phase, t.shown = phaseSpreading, r.end
			t.waitForAll(r)
		}
	case phaseSpreading:
		if !about || t.expect.isShownBy(r) {
			t.waitForAll(r)
		}
	case phaseCounting:
		t.count(r, about)
	}
}

// waitForAll starts counting when every expected backend has answered: one may still be
// connecting.
func (t *tally) waitForAll(r rpc) {
	t.spread.add(r)
	if t.expect.missing(t.spread) == "" {
		t.phase, t.since = phaseCounting, r.end
	}
}

func (t *tally) count(r rpc, about bool) {
	if !r.start.After(t.since) {
		return
	}
	if about && r.configuration != t.expect.configuration {
		if t.strays == 0 {
			t.firstStray = r
		}
		t.strays++
	}
	t.counted.add(r)
	if !t.judged && t.expect.enough(t.counted) {
		t.judged = true
		close(t.ready)
	}
}

// shares returns the RPCs that count or, as long as none does, all of the step's.
func (t *tally) shares() counts {
	if t.counted.of("") > 0 {
		return t.counted.clone()
	}
	return t.answered.clone()
}

// excused counts the failures that the step excuses, and the others with the first of them.
func (t *tally) excused() (excused, others int, first rpc) {
	for _, r := range t.failures {
		if t.expect.excuses != nil && t.expect.excuses(r) {
			excused++
		} else if others++; others == 1 {
			first = r
		}
	}
	return excused, others + t.failed - len(t.failures), first
}

func (t *tally) speed() speed {
	s := speed{P50: t.latencies.quantile(0.5), P99: t.latencies.quantile(0.99)}
	if elapsed := time.Since(t.began).Seconds(); elapsed > 0 {
		s.Rate = math.Round(float64(t.answered.of("")+t.failed) / elapsed)
	}
	return s
}

func (t *tally) progress(id stepID, elapsed time.Duration) *progress {
	id.Name = ""
	return &progress{
		stepID: id.as("progress"), Elapsed: millis(elapsed), Arrived: t.phase != phaseUnseen,
		Counts: t.shares(), Failed: t.failed, speed: t.speed(),
	}
}

func (t *tally) judge(id stepID) *result {
	r := &result{
		stepID: id.as("observed"), Counts: t.shares(), Checks: t.expect.checks(t.counted), expected: t.expect.describe(t.counted),
		Answered: t.answered.of(""), Failed: t.failed, speed: t.speed(),
	}
	r.InFlight, _, _ = t.excused()
	if t.phase != phaseUnseen {
		r.Arrived = millis(t.shown.Sub(t.began))
	}
	if r.Faults = t.faults(r.Checks); len(r.Faults) > 0 {
		r.Event = "missed"
	}
	return r
}

// faults explains why the step was not observed; there are none if it was.
func (t *tally) faults(checks []check) []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	switch {
	case t.phase == phaseUnseen:
		fault("no RPC has shown the change within %v (%d RPCs were answered meanwhile)", time.Since(t.began).Round(time.Second/10), t.answered.of(""))
	case t.phase == phaseSpreading:
		fault("the change arrived after %v, but since then %s has answered no RPC that it should have",
			t.shown.Sub(t.began).Round(time.Millisecond/10), t.expect.missing(t.spread))
	case !t.judged:
		fault("too few RPCs were answered to judge the shares: %d, needed are %d of each group of methods", t.counted.of(""), minRPCs)
	default:
		for _, c := range checks {
			if !c.OK {
				fault("%v", c)
			}
		}
	}
	if t.strays > 0 {
		fault("%d RPCs were not routed by configuration %d although one before them was, the first by configuration %d",
			t.strays, t.expect.configuration, t.firstStray.configuration)
	}
	if _, others, first := t.excused(); others > 0 {
		faults = append(faults, describeFailures(others, first))
	}
	return faults
}

func describeFailures(n int, first rpc) string {
	switch {
	case n == 1:
		return fmt.Sprintf("an RPC failed: %s: %v", first.method, first.err)
	case first.err == nil:
		return fmt.Sprintf("%d RPCs failed", n)
	}
	return fmt.Sprintf("%d RPCs failed, the first: %s: %v", n, first.method, first.err)
}

// Latencies are counted in buckets whose bounds grow by latencyGrowth, which bounds the error
// of a quantile.
const (
	shortestLatency = time.Microsecond
	latencyGrowth   = 1.05
	latencyBuckets  = 400 // up to about five minutes
)

// latencies is a histogram of durations.
type latencies struct {
	buckets [latencyBuckets]int
	n       int
}

func (l *latencies) add(d time.Duration) {
	bucket := 0
	if d > shortestLatency {
		bucket = int(math.Log(float64(d)/float64(shortestLatency)) / math.Log(latencyGrowth))
	}
	l.buckets[min(bucket, latencyBuckets-1)]++
	l.n++
}

// quantile returns the upper bound of the bucket of q, from 0 to 1; 0 if there is nothing.
func (l *latencies) quantile(q float64) millis {
	rank := int(math.Ceil(q * float64(l.n)))
	for i, n := range l.buckets {
		if rank -= n; rank <= 0 && l.n > 0 {
			return millis(float64(shortestLatency) * math.Pow(latencyGrowth, float64(i+1)))
		}
	}
	return 0
}
