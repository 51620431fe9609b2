package soak

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dynxds/dynxds/internal/loopback"
)

// cooling is how long goroutines may outlive what they worked for: longer than any timeout of a connection.
const cooling = 5 * time.Minute

// result is what a simulation came to.
type result struct {
	// faults are the invariants that were violated.
	faults []string
	// lasted is in virtual time.
	lasted        time.Duration
	rpcs, excused int
	// done counts the operations, and log has those of the last round.
	done map[string]int
	log  []string
}

// simulate runs a plan.
func simulate(t *testing.T, p plan) (res result) {
	dialVirtually()
	loopback.Simulate(network)
	defer loopback.Simulate(nil)
	defer func() {
		// Goroutines are left that wait for nothing, or all of them do.
		if r := recover(); r != nil {
			res.faults = append(res.faults, fmt.Sprint(r))
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		begin, before := time.Now(), goleak.IgnoreCurrent()
		t.Cleanup(func() {
			time.Sleep(cooling)
			synctest.Wait()
			if err := goleak.Find(before); err != nil {
				res.faults = append(res.faults, err.Error())
			}
		})
		s := &simulation{TB: t, result: &res}
		var work sync.WaitGroup
		work.Go(func() { s.run(p) })
		work.Wait()
		res.lasted = time.Since(begin)
	})
	return res
}

// simulation is the testing.TB of a run: what fails it is an error of the plan.
type simulation struct {
	testing.TB
	*result

	mu sync.Mutex
}

func (s *simulation) Errorf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

func (s *simulation) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.faults) > 0
}

func (s *simulation) Error(args ...any) { s.Errorf("%s", fmt.Sprint(args...)) }

func (s *simulation) Fatal(args ...any) { s.Fatalf("%s", fmt.Sprint(args...)) }

func (s *simulation) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}

func (s *simulation) run(p plan) {
	r := newRun(s, p)
	defer func() {
		r.end()
		for _, c := range r.channels {
			s.rpcs += c.succeeded
			s.excused += c.excused
		}
		s.done, s.log = r.done, r.trace
	}()
	r.begin()
	for i, of := range p.rounds {
		var events []event
		for _, e := range p.events {
			if e.round == i {
				events = append(events, e)
			}
		}
		if len(events) > 0 && !s.Failed() {
			r.round(of, events)
		}
	}
}
