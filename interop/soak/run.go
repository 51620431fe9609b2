package soak

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dynxds/dynxds/interop/load"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
)

const (
	// opsPerRound is the number of operations in a round, after which the mesh settles.
	opsPerRound = 60
	// roundsPerMeasure is the number of rounds between two measurements of memory.
	roundsPerMeasure = 5
	// maxPause is the longest time between two operations.
	maxPause = 25 * time.Millisecond
	// maxLatency is the longest delay of a message between a client and a control plane.
	maxLatency = 20 * time.Millisecond
)

// run is one run, driven by one goroutine: rounds of operations on a mesh.
type run struct {
	disruptor
	figures
	// steps counts the operations.
	steps int64
	// trace is the operations of the round.
	trace []string
	// polling is how often the settling is looked at, and within is how long it may take.
	polling, within time.Duration
}

// newRun makes a mesh with a first configuration.
func newRun(t testing.TB, in surroundings, random *rand.Rand, who []client) *run {
	r := &run{
		disruptor: disruptor{
			publisher: publisher{mesh: newMesh(t, in), t: t, draw: draw{Rand: random, count: backends, clients: who}},
			faulty:    map[*meshtest.Server]bool{},
		},
		figures: figures{done: map[string]int{}},
		polling: 10 * time.Millisecond, within: 2 * patience,
	}
	r.clock = func() int64 { return r.steps }
	r.lasts = func() int64 { return 1 + r.Int64N(longestUndo) }
	for _, c := range who {
		r.channels = append(r.channels, &channel{client: c})
	}
	r.publish(plain(1, methods()))
	return r
}

// methods are those of the RPCs.
func methods() (all []string) {
	for _, kind := range load.Kinds {
		all = append(all, kind.Method)
	}
	return all
}

// Run disrupts a mesh for at least the duration, and fails the test for each violated
// invariant.
func Run(t testing.TB, seed uint64, duration time.Duration) {
	r := newRun(t, sockets{}, rand.New(rand.NewPCG(seed, 0)), clients)
	for _, c := range r.channels {
		c.begin(r)
	}
	defer func() {
		r.undoAll()
		for _, c := range r.channels {
			c.end()
		}
		r.report(seed)
	}()
	r.settle()
	begin := time.Now()
	for r.rounds == 0 || time.Since(begin) < duration && !t.Failed() {
		r.round()
		if r.rounds%roundsPerMeasure == 1 {
			r.measure()
		}
	}
	r.measure()
}

// round draws latencies, does operations and lets the mesh settle. In every other round
// the control plane lies at times: then clients need not see changes in order.
func (r *run) round() {
	r.rounds++
	r.lying = r.rounds%2 == 0
	r.trace = nil
	r.drawLatencies()
	r.judgeOrder(!r.lying)
	for range opsPerRound {
		r.step()
	}
	r.settle()
	for _, c := range r.channels {
		if err := c.faulty(); err != nil {
			r.t.Errorf("round %d: %v\nThe operations of the round:\n%s", r.rounds, err, strings.Join(r.trace, "\n"))
		}
	}
}

// drawLatencies sets the latencies of the links: none in every third round.
func (r *run) drawLatencies() {
	for i, link := range r.links {
		toServer, toClient := time.Duration(r.Int64N(int64(maxLatency))), time.Duration(r.Int64N(int64(maxLatency)))
		if r.rounds%3 == 0 {
			toServer, toClient = 0, 0
		}
		link.SetDelay(toServer, toClient)
		r.trace = append(r.trace, fmt.Sprintf("%s messages to control plane %d take %v, from it %v",
			time.Now().Format("15:04:05.000"), i, toServer, toClient))
	}
}

// step does one operation, ends the disruptions that are due, and pauses.
func (r *run) step() {
	r.lookForSure()
	for {
		o := r.op()
		if r.try(o) {
			break
		}
	}
	r.steps++
	r.undoDue()
	<-time.After(time.Duration(r.Int64N(int64(maxPause))))
}

// try does an operation, if it can be done.
func (r *run) try(o op) bool {
	if !o.do(r) {
		return false
	}
	r.done[o.name]++
	r.trace = append(r.trace, fmt.Sprintf("%s %s; %v", time.Now().Format("15:04:05.000"), o.name, r.newest))
	r.stir()
	return true
}

// lookForSure notes which backends have been up since the mesh settled.
func (r *run) lookForSure() {
	r.sure = nil
	for i, b := range r.backends {
		if b.sure {
			r.sure = append(r.sure, i)
		}
	}
}

// settle ends all disruptions, and waits until every client holds the newest
// configuration and RPCs follow it. Then all other resources are deleted.
func (r *run) settle() {
	r.undoAll()
	next := r.newest.clone()
	next.version++
	r.publish(next)
	begin := time.Now()
	r.await("the clients to hold the newest configuration", func() error {
		for _, c := range r.channels {
			if d := r.difference(c.client, next); d != "" {
				return fmt.Errorf("%s: %s", c.name, d)
			}
		}
		return nil
	})
	for _, c := range r.channels {
		c.expect(next)
	}
	r.await("RPCs to follow the newest configuration", func() error {
		r.stir()
		var errs []error
		for _, c := range r.channels {
			if err := c.arrived(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
			}
		}
		return errors.Join(errs...)
	})
	r.settling = max(r.settling, time.Since(begin))
	r.history.settle(time.Now())
	for _, b := range r.backends {
		b.sure = true
	}
	r.update(func(tx *controlplane.Tx) {
		for _, typeURL := range types {
			tx.DeleteAll(typeURL)
		}
		next.put(tx, r.addr)
	})
}

// await returns when check returns nil.
func (r *run) await(what string, check func() error) {
	ticker := time.NewTicker(r.polling)
	defer ticker.Stop()
	timeout := time.NewTimer(r.within)
	defer timeout.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-timeout.C:
			for _, c := range r.channels {
				err = errors.Join(err, c.faulty())
			}
			r.t.Fatalf("round %d: waiting for %s: %v", r.rounds, what, err)
		}
	}
}

// judgeOrder turns the check of the order of versions on or off. It stays off for
// clients with two servers: the preferred one may return with older resources than the
// other one has sent.
func (r *run) judgeOrder(on bool) {
	for _, c := range r.channels {
		c.judgeOrder(on && !c.further)
	}
}
