package scenario

import (
	"fmt"
	"maps"
	"time"
)

// maxFailures is how many failed RPCs of a step are kept to be judged. What
// goes beyond it is too much to be excused.
const maxFailures = 1000

// phase is how far a step's change has come.
type phase int

const (
	// phaseUnseen: no RPC has shown the change.
	phaseUnseen phase = iota
	// phaseSpreading: the change has been seen, but not yet an answer of every
	// backend that should give some; it may still be connecting.
	phaseSpreading
	// phaseCounting: RPCs that start from now on count.
	phaseCounting
)

// tally is what became of one step's RPCs.
type tally struct {
	expect Expectation
	// began is when the step's change was begun.
	began time.Time
	// ready is closed when there are RPCs enough to judge the step.
	ready chan struct{}

	phase phase
	// shown is when the first RPC that shows the change ended, since is when
	// counting began.
	shown, since time.Time

	// answered has every answered RPC of the step, spread those since shown,
	// counted those that are judged.
	answered, spread, counted Counts
	latencies                 latencies
	// strays are counted RPCs that another configuration routed.
	strays       int
	firstStray   RPC
	failed       int
	failures     []RPC
	readyIsGiven bool
}

func newTally(expect Expectation, began time.Time) *tally {
	return &tally{
		expect: expect, began: began, ready: make(chan struct{}),
		answered: Counts{}, spread: Counts{}, counted: Counts{},
	}
}

func (t *tally) record(r RPC) {
	if r.Err != nil {
		t.failed++
		if len(t.failures) < maxFailures {
			t.failures = append(t.failures, r)
		}
		return
	}
	cell := Cell{r.Method, r.Backend}
	t.answered[cell]++
	if !r.Paced {
		t.latencies.add(r.End.Sub(r.Start))
	}
	switch t.phase {
	case phaseUnseen:
		if !t.expect.about(r) || !t.expect.shows(r) {
			return
		}
		t.phase, t.shown = phaseSpreading, r.End
		t.spreading(cell, r)
	case phaseSpreading:
		t.spreading(cell, r)
	case phaseCounting:
		t.count(cell, r)
	}
}

// spreading waits until every expected backend has answered.
func (t *tally) spreading(cell Cell, r RPC) {
	if t.expect.about(r) && !t.expect.shows(r) {
		return
	}
	t.spread[cell]++
	if t.expect.missing(t.spread) == "" {
		t.phase, t.since = phaseCounting, r.End
	}
}

func (t *tally) count(cell Cell, r RPC) {
	if !r.Start.After(t.since) {
		return
	}
	if t.expect.about(r) && r.Configuration != t.expect.Configuration {
		if t.strays == 0 {
			t.firstStray = r
		}
		t.strays++
	}
	t.counted[cell]++
	if !t.readyIsGiven && t.expect.enough(t.counted) {
		t.readyIsGiven = true
		close(t.ready)
	}
}

// shares returns what a reader wants to see now: the RPCs that count, or all
// of the step's while none does.
func (t *tally) shares() Counts {
	if t.counted.Of("") > 0 {
		return maps.Clone(t.counted)
	}
	return maps.Clone(t.answered)
}

// excused splits the failures into those that had to be and the others, of
// which the first is returned.
func (t *tally) excused() (excused, others int, first RPC) {
	for _, r := range t.failures {
		if t.expect.Excuses != nil && t.expect.Excuses(r) {
			excused++
		} else if others++; others == 1 {
			first = r
		}
	}
	return excused, others + t.failed - len(t.failures), first
}

// faults says in words why the step was not observed; none means it was.
func (t *tally) faults(checks []Check, now time.Time) []string {
	var faults []string
	switch {
	case t.phase == phaseUnseen:
		faults = append(faults, fmt.Sprintf("no RPC has shown the change within %v (%d RPCs were answered meanwhile)",
			roundDuration(now.Sub(t.began)), t.answered.Of("")))
	case t.phase == phaseSpreading:
		faults = append(faults, fmt.Sprintf("the change arrived after %v, but since then %s has answered no RPC that it should have",
			roundDuration(t.shown.Sub(t.began)), t.expect.missing(t.spread)))
	case !t.readyIsGiven:
		faults = append(faults, fmt.Sprintf("too few RPCs were answered to judge the shares: %d, needed are %d of each group of methods",
			t.counted.Of(""), MinRPCs))
	default:
		for _, c := range checks {
			if !c.OK() {
				faults = append(faults, c.String())
			}
		}
	}
	if t.strays > 0 {
		faults = append(faults, fmt.Sprintf("%d RPCs were not routed by configuration %d although one before them was, the first by configuration %d",
			t.strays, t.expect.Configuration, t.firstStray.Configuration))
	}
	if _, others, first := t.excused(); others > 0 {
		faults = append(faults, describeFailures(others, first))
	}
	return faults
}

func describeFailures(n int, first RPC) string {
	if n == 1 {
		return fmt.Sprintf("an RPC failed: %s: %v", first.Method, first.Err)
	}
	if first.Err == nil {
		return fmt.Sprintf("%d RPCs failed", n)
	}
	return fmt.Sprintf("%d RPCs failed, the first: %s: %v", n, first.Method, first.Err)
}
