package demo

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// sigmas is the number of standard deviations that a share may be off. A correct split exceeds five about
	// once in a million times.
	sigmas = 5
	// minRPCs is the number of RPCs of each group that a judgement needs: with fewer, the allowed deviation
	// proves little.
	minRPCs = 100
	// maxFailures bounds the failed RPCs of a step that are kept. Those beyond it are not excused.
	maxFailures = 1000
)

// rpc is one RPC that has ended, as its client saw it.
type rpc struct {
	method        string // short name, or the name of a further client
	backend       string // that answered, or ""
	peer          string // the address of the connection, or ""
	configuration int    // that routed it, 0 if unknown
	start, end    time.Time
	err           error
}

// expectation describes the RPCs once a step's change has arrived.
type expectation struct {
	// configuration is the number of the one in force. An RPC that another one routed, after the change was
	// seen, is a fault.
	configuration int
	// about selects the RPCs that the change affects; nil is all of them. The others prove nothing, and any
	// configuration may route them.
	about func(rpc) bool
	// shows reports whether an answered RPC proves that the change has arrived; nil stands for "configuration
	// routed it". It holds for every affected RPC that starts after one of them has ended.
	shows func(rpc) bool
	// groups are sets of methods, each with its own split.
	groups []group
	// excuses reports whether a failed RPC had to fail; nil excuses none.
	excuses func(rpc) bool
}

// group is a set of methods, or of further clients, whose RPCs are split alike: by independent draws or more
// evenly, as by round robin.
type group struct {
	methods []string           // none means all
	shares  map[string]float64 // by backend, with the sum 1; an absent backend has none
}

func (e *expectation) isAbout(r rpc) bool { return e.about == nil || e.about(r) }

// isShownBy reports whether an affected RPC proves that the change arrived.
func (e *expectation) isShownBy(r rpc) bool {
	if e.shows != nil {
		return e.shows(r)
	}
	return r.configuration == e.configuration
}

// enough reports whether every group has enough RPCs to be judged.
func (e *expectation) enough(c counts) bool {
	return !slices.ContainsFunc(e.groups, func(g group) bool { return c.of("", g.methods...) < minRPCs })
}

// missing returns an expected backend that has not answered, or "".
func (e *expectation) missing(c counts) string {
	for _, g := range e.groups {
		for backend, share := range g.shares {
			if share > 0 && c.of(backend, g.methods...) == 0 {
				return backend
			}
		}
	}
	return ""
}

// wrongShares describes the backends whose share of a group's RPCs is not what chance allows.
func (e *expectation) wrongShares(c counts) (wrong []string) {
	for _, g := range e.groups {
		n := c.of("", g.methods...)
		backends := maps.Clone(g.shares)
		for key := range c {
			backends[key[0]] = g.shares[key[0]]
		}
		for _, backend := range slices.Sorted(maps.Keys(backends)) {
			got, want, allowed := c.share(backend, g.methods...), g.shares[backend], tolerance(g.shares[backend], n)
			// The slack is for rounding: with a share of 0 or 1 the tolerance is 0.
			if math.Abs(got-want) <= allowed+1e-9 {
				continue
			}
			methods := "all methods"
			if len(g.methods) > 0 {
				methods = strings.Join(g.methods, ", ")
			}
			wrong = append(wrong, fmt.Sprintf("%s answered %.1f%% of %s (%s), expected %.1f%% ±%.1f%%",
				backend, 100*got, plural(n, "RPC", "RPCs"), methods, 100*want, 100*allowed))
		}
	}
	return wrong
}

// tolerance is sigmas standard deviations of the share of n independent draws with probability p.
func tolerance(p float64, n int) float64 { return sigmas * math.Sqrt(p*(1-p)/float64(max(1, n))) }

// recorder adds RPCs from any number of goroutines to the tally of the step under way. Its memory does not grow
// with their number.
type recorder struct {
	mu               sync.Mutex
	tally            *tally         // nil before the first step
	answered, failed int            // of all steps
	backends         map[string]int // answered
}

// record adds an RPC that has ended.
func (r *recorder) record(ended rpc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ended.err != nil {
		r.failed++
	} else {
		r.answered++
		if r.backends == nil {
			r.backends = map[string]int{}
		}
		r.backends[ended.backend]++
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
		expect: expect, began: time.Now(), ready: make(chan struct{}), answered: counts{}, spread: counts{}, counted: counts{},
	}
	return r.tally.ready
}

// read calls f with the tally of the present step, which f must not keep.
func (r *recorder) read(f func(*tally)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.tally)
}

// byBackend returns how many RPCs each backend has answered.
func (r *recorder) byBackend() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.backends)
}

func (r *recorder) totals() (answered, failed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answered, r.failed
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
	// shown is the end of the first RPC that shows the change, since the begin of counting.
	shown, since time.Time
	// answered are all answered RPCs of the step, spread those since shown, counted those that are judged.
	answered, spread, counted counts
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
	t.answered[[2]string{r.backend, r.method}]++
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

// waitForAll starts counting when every expected backend has answered: one may still be connecting.
func (t *tally) waitForAll(r rpc) {
	t.spread[[2]string{r.backend, r.method}]++
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
	t.counted[[2]string{r.backend, r.method}]++
	if !t.judged && t.expect.enough(t.counted) {
		t.judged = true
		close(t.ready)
	}
}

// shares returns the RPCs that count or, as long as none does, all of the step's.
func (t *tally) shares() counts {
	if len(t.counted) > 0 {
		return t.counted
	}
	return t.answered
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

// faults explains why the step was not observed; there are none if it was.
func (t *tally) faults() []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	switch {
	case t.phase == phaseUnseen:
		fault("no RPC has shown the change within %v (%s answered meanwhile)", time.Since(t.began).Round(time.Second/10),
			plural(t.answered.of(""), "RPC was", "RPCs were"))
	case t.phase == phaseSpreading:
		fault("the change arrived after %v, but since then %s has answered no RPC that it should have",
			t.shown.Sub(t.began).Round(time.Millisecond/10), t.expect.missing(t.spread))
	case !t.judged:
		fault("too few RPCs were answered to judge the shares: %d, needed are %d of each group of methods", t.counted.of(""), minRPCs)
	default:
		faults = t.expect.wrongShares(t.counted)
	}
	if t.strays > 0 {
		fault("%s not routed by configuration %d although an RPC before was, the first by configuration %d",
			plural(t.strays, "RPC was", "RPCs were"), t.expect.configuration, t.firstStray.configuration)
	}
	if _, others, first := t.excused(); others > 0 {
		text := plural(others, "RPC failed", "RPCs failed")
		if first.err != nil {
			text += fmt.Sprintf(", the first: %s: %v", first.method, first.err)
		}
		faults = append(faults, text)
	}
	return faults
}
