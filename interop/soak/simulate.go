package soak

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
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
	lasted  time.Duration
	rpcs    int
	excused int
	done    map[string]int
	log     []string
	settled time.Duration
}

// simulate runs a plan, whose events may be further operations.
func simulate(t *testing.T, p plan, further ...op) (res result) {
	dialVirtually()
	loopback.Simulate(&network)
	defer loopback.Simulate(nil)
	defer func() {
		// Goroutines are left that wait for nothing, or all of them do.
		if r := recover(); r != nil {
			res.faults = append(res.faults, fmt.Sprint(r))
		}
	}()
	caches, err := os.MkdirTemp("", "simulation")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(caches)
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := &simulation{plan: p, TB: t, result: &res, caches: caches, ops: slices.Concat(ops, further)}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer s.cleanUp()
			s.run()
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

// simulation is a run of a plan. It is the testing.TB of the run: what fails it is a fault of the plan.
type simulation struct {
	testing.TB
	plan   plan
	caches string
	ops    []op
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

func (s *simulation) Fatal(args ...any) {
	s.Error(args...)
	runtime.Goexit()
}

func (s *simulation) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}

func (s *simulation) run() {
	var who []client
	for _, i := range s.plan.clients {
		c := clients[i]
		if s.plan.cached[i] {
			c.cache = fmt.Sprintf("%s/%d", s.caches, i)
		}
		who = append(who, c)
	}
	r := newRun(s, rand.New(rand.NewPCG(s.plan.seed, 0)), who)
	for _, c := range r.channels {
		c.startAfresh(true)
		c.begin(r)
	}
	defer func() {
		for _, p := range r.undo {
			p.do()
		}
		for _, c := range r.channels {
			if c.cc != nil {
				c.end()
			}
			for _, n := range c.succeeded {
				s.rpcs += n
			}
			for _, n := range c.excused {
				s.excused += n
			}
		}
		s.done, s.settled = r.done, r.settled
		for _, host := range r.hosts() {
			network.Forget(host)
		}
	}()
	r.lookForSure()
	for range 2 {
		r.addCluster()
	}
	r.settle()
	r.welcome()
	for i, of := range s.plan.rounds {
		var events []event
		for _, e := range s.plan.events {
			if e.round == i {
				events = append(events, e)
			}
		}
		if len(events) > 0 && !s.Failed() {
			s.round(r, of, events)
		}
	}
}

// round does the events of a round, and lets the mesh settle.
func (s *simulation) round(r *run, of round, events []event) {
	r.rounds++
	r.lying, r.trace = of.lying, nil
	r.judgeOrder(!r.lying)
	begin := time.Now()
	for _, e := range events {
		if e.op == loses {
			r.within = settling + noticing
		}
		r.sleepUntil(begin.Add(e.at))
		r.Rand = rand.New(rand.NewPCG(e.seed, 0))
		r.lasts = e.lasts
		r.lookForSure()
		o := s.ops[slices.IndexFunc(s.ops, func(o op) bool { return o.name == e.op })]
		if !r.try(o) {
			r.trace = append(r.trace, "not done: "+o.name)
		}
		r.welcome()
	}
	r.settle()
	r.within = settling
	r.welcome()
	for _, c := range r.channels {
		if err := c.faulty(); err != nil {
			s.Errorf("round %d: %v", r.rounds, err)
		}
	}
	s.log = r.trace
	time.Sleep(of.quiet)
}

// sleepUntil ends the disruptions that are due until then.
func (r *run) sleepUntil(then time.Time) {
	for {
		next := then
		for _, p := range r.undo {
			if p.due.Before(next) {
				next = p.due
			}
		}
		time.Sleep(time.Until(next))
		before := len(r.undo)
		r.undoDue()
		if len(r.undo) != before {
			r.trace = append(r.trace, time.Now().Format("15:04:05.000")+" a disruption ends")
			r.pacing.stir()
		}
		if !time.Now().Before(then) {
			return
		}
	}
}

// welcome no longer excuses the failures of clients that have started and have the newest configuration. It excuses those of
// clients that start from disk and that DPDS moves: they never had the variants of their new constraints.
func (r *run) welcome() {
	for _, c := range r.channels {
		switch {
		case c.cc == nil || !c.isFresh() && !c.fromDisk:
		case r.difference(c.client, r.newest) == "":
			c.fromDisk = false
			c.startAfresh(false)
		case c.fromDisk && r.moves(c.client):
			c.startAfresh(true)
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
