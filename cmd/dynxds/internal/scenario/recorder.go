package scenario

import (
	"sync"
	"time"
)

// Recorder takes in RPCs from any number of goroutines. Its memory does not
// grow with their number.
type Recorder struct {
	mu sync.Mutex
	// current is nil before the first step.
	current *tally
	total   Totals
}

// Totals are all RPCs so far.
type Totals struct {
	Answered, Failed int
}

// NewRecorder returns a Recorder that has seen no RPC.
func NewRecorder() *Recorder { return &Recorder{} }

// Record takes in an RPC that has ended. It counts for the step that is under
// way.
func (r *Recorder) Record(rpc RPC) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rpc.Err != nil {
		r.total.Failed++
	} else {
		r.total.Answered++
	}
	if r.current != nil {
		r.current.record(rpc)
	}
}

// Totals returns the RPCs recorded so far.
func (r *Recorder) Totals() Totals {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}

// begin makes RPCs count for a new step, and returns the channel that is closed
// when there are enough of them.
func (r *Recorder) begin(expect Expectation) (ready <-chan struct{}) {
	t := newTally(expect, time.Now())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = t
	return t.ready
}

// read calls f with the present step's tally, which f must not keep.
func (r *Recorder) read(f func(*tally)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.current)
}
