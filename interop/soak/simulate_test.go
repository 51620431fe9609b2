package soak

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	firstSeed = flag.Uint64("first", 1, "the seed of the first simulation")
	seeds     = flag.Int("seeds", 6, "the number of simulations")
	shrinking = flag.Int("shrink", 3, "how often a smaller plan is tried, as schedules differ from run to run; 0 to shrink none")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stuck is how long a simulation may take in real time. One in which goroutines wait for each other's locks never ends.
const stuck = 15 * time.Minute

// TestSimulations runs the mesh on virtual time. Each seed gives a plan of events. A plan that fails is shrunk to the
// fewest events that fail.
func TestSimulations(t *testing.T) {
	total, events := result{done: map[string]int{}}, 0
	begin := time.Now()
	for i := range uint64(*seeds) {
		p := newPlan(*firstSeed + i)
		res := within(t, p)
		if testing.Verbose() {
			fmt.Fprintf(os.Stderr, "seed %d: %v, %d RPCs\n", p.seed, res.lasted.Round(time.Second), res.rpcs)
		}
		total.lasted, total.rpcs, total.excused = total.lasted+res.lasted, total.rpcs+res.rpcs, total.excused+res.excused
		for op, n := range res.done {
			total.done[op] += n
			events += n
		}
		if len(res.faults) > 0 {
			t.Errorf("%v\n%s\n\n%s", p, strings.Join(res.faults, "\n"), strings.Join(res.log, "\n"))
			report(t, p)
		}
	}
	t.Logf("seeds %d to %d: %v of virtual time in %v, %d events, %d RPCs; %d more failed as their backend broke the connection, or their client had just started",
		*firstSeed, *firstSeed+uint64(*seeds)-1, total.lasted.Round(time.Minute), time.Since(begin).Round(time.Second), events, total.rpcs, total.excused)
	if testing.Verbose() {
		t.Log(total.done)
	}
}

// newcomer has all routes lead to a new cluster.
var newcomer = op{"all routes lead to a new cluster", 0, func(r *run) bool {
	return r.changeRoutes(func(c *config) {
		next := plain(c.version)
		c.routes = next.routes
		maps.Copy(c.clusters, next.clusters)
	})
}}

// Routes to a new Cluster wait while the control plane does not read that it is asked for, for longer than any resource
// timer, if it would say that it lacks the Cluster. It sends something meanwhile.
func TestRoutesWaitForASilentServer(t *testing.T) {
	for _, c := range clients {
		if !slices.Contains(c.features, saysAbsence) {
			continue
		}
		at := func(second time.Duration, op *op) event {
			return event{at: second * time.Second, op: op, lasts: 80 * time.Second}
		}
		p := plan{clients: []client{c}, rounds: []round{{quiet: time.Minute}}, events: []event{
			at(10, honest("the control plane stops reading")), at(20, &newcomer), at(30, honest("endpoints change")), at(70, honest("certificates are renewed")),
		}}
		if res := within(t, p); len(res.faults) > 0 || len(res.done) != len(p.events) {
			t.Errorf("%s: %q\n%s", c.name, res.faults, strings.Join(res.log, "\n"))
		}
	}
}

// honest is an operation of honest rounds.
func honest(name string) *op {
	return &honestRound[slices.IndexFunc(honestRound, func(o op) bool { return o.name == name })]
}

// within simulates a plan, and ends the process if that is stuck.
func within(t *testing.T, p plan) result {
	watchdog := time.AfterFunc(stuck, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("the simulation is stuck: %v", p))
	})
	defer watchdog.Stop()
	return simulate(t, p)
}

// failing simulates a plan until it fails, but so many times at most, and returns the last result.
func failing(t *testing.T, p plan, times int) (res result) {
	for range times {
		if res = within(t, p); len(res.faults) > 0 {
			break
		}
	}
	return res
}

// report shrinks a plan that fails.
func report(t *testing.T, p plan) {
	if *shrinking == 0 {
		return
	}
	var last result
	small := shrink(p, func(p plan) bool {
		res := failing(t, p, *shrinking)
		if len(res.faults) > 0 {
			last = res
		}
		return len(res.faults) > 0
	})
	t.Errorf("shrunk: %v\n%s\n\n%s", small, strings.Join(last.faults, "\n"), strings.Join(last.log, "\n"))
}
