package soak

import (
	"bytes"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
	loopback.Simulate(&network)
	defer loopback.Simulate(nil)
	defer func() {
		// Goroutines are left that wait for nothing, or all of them do.
		if r := recover(); r != nil {
			res.faults = append(res.faults, fmt.Sprint(r))
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := &simulation{TB: t, result: &res}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer s.cleanUp()
			s.run(p)
		}()
		<-ended
		res.lasted = time.Since(begin)
		time.Sleep(cooling)
		synctest.Wait()
		if left := othersOfTheBubble(); left != "" {
			res.faults = append(res.faults, "goroutines are left:\n"+left)
		}
	})
	return res
}

// simulation is the testing.TB of a run: what fails it is a fault of the plan.
type simulation struct {
	testing.TB
	*result

	mu       sync.Mutex
	cleanups []func()
}

func (s *simulation) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

func (s *simulation) cleanUp() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
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

var bubbleOf = regexp.MustCompile(`synctest bubble \d+`)

// othersOfTheBubble returns the stacks of the goroutines of the caller's bubble but for the caller's own and those of package testing.
func othersOfTheBubble() string {
	buf := make([]byte, 1<<20)
	all := bytes.Split(buf[:runtime.Stack(buf, true)], []byte("\n\n"))
	mine := bubbleOf.Find(all[0])
	var left []string
	for _, stack := range all[1:] {
		head, _, _ := bytes.Cut(stack, []byte("\n"))
		if bytes.Contains(head, append(mine, ']')) && !bytes.Contains(stack, []byte("testingSynctestTest")) && !bytes.Contains(stack, []byte("testing/synctest.Test(")) {
			left = append(left, string(stack))
		}
	}
	return strings.Join(left, "\n\n")
}
