package soak

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dynxds/dynxds/interop/load"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/meshtest"
)

const (
	// polling is how often a run looks whether the mesh has settled, and settling how long that may
	// take: the longest backoff, 144 s, and something. noticing is how long a client takes to notice that a
	// connection was lost: its keepalive, 5 min 20 s, and something.
	polling  = 250 * time.Millisecond
	settling = 3 * time.Minute
	noticing = 6 * time.Minute
)

// run is one run, driven by one goroutine: rounds of operations on a mesh.
type run struct {
	disruptor
	rounds int
	// done counts the operations by name.
	done map[string]int
	// settled is the longest time that the mesh took to settle, and within is how long that may take.
	settled, within time.Duration
	// trace is the operations of the round.
	trace []string
}

// newRun makes a mesh with a first configuration.
func newRun(t testing.TB, random *rand.Rand, who []client) *run {
	r := &run{
		disruptor: disruptor{
			publisher: publisher{mesh: newMesh(t), t: t, draw: draw{Rand: random, count: backends, clients: who}},
			faulty:    map[*meshtest.Server]bool{},
		},
		done: map[string]int{}, within: settling,
	}
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

// try does an operation, if it can be done.
func (r *run) try(o op) bool {
	if !o.do(r) {
		return false
	}
	r.done[o.name]++
	r.trace = append(r.trace, fmt.Sprintf("%s %s; %v", time.Now().Format("15:04:05.000"), o.name, r.newest))
	r.pacing.stir()
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
		r.pacing.stir()
		var errs []error
		for _, c := range r.channels {
			if err := c.arrived(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
			}
		}
		return errors.Join(errs...)
	})
	r.settled = max(r.settled, time.Since(begin))
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
	ticker := time.NewTicker(polling)
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
