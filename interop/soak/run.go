package soak

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dynxds/dynxds/mesh/controlplane"
)

const (
	// polling is how often a run looks whether the mesh has settled, and settling how long that may
	// take: the longest backoff, 144 s, and something. noticing is how long a client takes to notice that a
	// connection was lost: its keepalive, 5 min 20 s, and something.
	polling  = 250 * time.Millisecond
	settling = 3 * time.Minute
	noticing = 6 * time.Minute
)

// run is one run of a plan, driven by one goroutine: rounds of operations on a mesh.
type run struct {
	*mesh
	draw
	t       testing.TB
	history history
	// newest is the configuration that was published last.
	newest *config
	// lying says that the control plane lies at times in this round.
	lying bool
	// disrupted has the servers and hosts that are disrupted, and undo what ends the disruptions, of which the next lasts for so long.
	disrupted map[any]bool
	undo      []pending
	lasts     time.Duration
	// within is how long the mesh may take to settle.
	within time.Duration
	// done counts the operations by name.
	done   map[string]int
	rounds int
	// trace is the operations of the round.
	trace []string
}

// newRun makes a mesh that has settled with a first configuration.
func newRun(t testing.TB, p plan) *run {
	r := &run{
		mesh: newMesh(t), draw: draw{Rand: rand.New(rand.NewPCG(p.seed, 0)), sure: allBackends, clients: p.clients}, t: t,
		disrupted: map[any]bool{}, done: map[string]int{}, within: settling,
	}
	r.publish(plain(1))
	for _, c := range p.clients {
		r.channels = append(r.channels, &channel{client: c})
	}
	for _, c := range r.channels {
		c.begin(r)
	}
	return r
}

// end ends all traffic.
func (r *run) end() {
	r.undoAll()
	for _, c := range r.channels {
		if c.cc != nil {
			c.end()
		}
	}
	for _, host := range r.hosts() {
		network.Forget(host)
	}
}

// begin lets the mesh settle with some clusters.
func (r *run) begin() {
	for range 2 {
		r.addCluster()
	}
	r.settle()
}

// round does the events of a round, and lets the mesh settle.
func (r *run) round(of round, events []event) {
	r.rounds++
	r.lying, r.trace = of.lying, nil
	for _, c := range r.channels {
		c.judgeOrder(!r.lying)
	}
	begin := time.Now()
	for _, e := range events {
		if e.op.name == loses {
			r.within = settling + noticing
		}
		r.sleepUntil(begin.Add(e.at))
		r.Rand = rand.New(rand.NewPCG(e.seed, 0))
		r.lasts = e.lasts
		if e.op.do(r) {
			r.done[e.op.name]++
			r.note(fmt.Sprintf("%s; %v", e.op.name, r.newest))
		} else {
			r.note("not done: " + e.op.name)
		}
		r.welcome()
	}
	r.settle()
	r.within = settling
	for _, c := range r.channels {
		if err := c.faulty(); err != nil {
			r.t.Errorf("round %d: %v", r.rounds, err)
		}
	}
	time.Sleep(of.quiet)
}

// note adds something to the trace that RPCs are to notice.
func (r *run) note(what string) {
	r.trace = append(r.trace, time.Now().Format("15:04:05.000")+" "+what)
	r.pacing.stir()
}

// sleepUntil ends the disruptions that are due until then.
func (r *run) sleepUntil(then time.Time) {
	var next time.Time
	for next.Before(then) {
		next = then
		for _, p := range r.undo {
			if p.due.Before(next) {
				next = p.due
			}
		}
		time.Sleep(time.Until(next))
		if r.undoUntil(next) {
			r.note("a disruption ends")
		}
	}
}

// welcome no longer excuses the failures of clients that have started and have the newest configuration. It excuses those of
// clients that start from disk and that DPDS moves: they never had the variants of their new constraints. It does so too while
// another server that has DPDS does not answer: constraints are not on disk, and without them a client subscribes to other variants.
func (r *run) welcome() {
	for _, c := range r.channels {
		fresh := c.wasFresh(time.Now())
		switch {
		case c.cc == nil || !fresh && !c.fromDisk:
		case r.difference(c.client, r.newest) == nil:
			c.fromDisk = false
			if fresh {
				c.welcome(time.Now())
			}
		case c.fromDisk && (r.moves(c.client) || c.dpds == dropsDPDS && r.disrupted[r.policy]):
			c.welcome(time.Time{})
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
	r.await("the clients to hold the newest configuration", func(c *channel) error { return r.difference(c.client, next) })
	r.await("RPCs to follow the newest configuration", func(c *channel) error {
		r.pacing.stir()
		return c.arrived(next)
	})
	r.history.settle(time.Now())
	r.sure = allBackends
	r.update(func(tx *controlplane.Tx) {
		for _, typeURL := range types {
			tx.DeleteAll(typeURL)
		}
		next.put(tx, r.addr)
	})
	r.welcome()
}

// await returns when check returns nil for every channel.
func (r *run) await(what string, check func(*channel) error) {
	for end := time.Now().Add(r.within); ; time.Sleep(polling) {
		var errs []error
		for _, c := range r.channels {
			if err := check(c); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
			}
		}
		if errs == nil {
			return
		}
		if time.Now().After(end) {
			for _, c := range r.channels {
				errs = append(errs, c.faulty())
			}
			r.t.Fatalf("round %d: waiting for %s: %v", r.rounds, what, errors.Join(errs...))
		}
	}
}
