package controlplane

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/boundlog"
)

var logger = boundlog.Component("dynxds")

// Compute makes f compute the resources of a type, one for each name and constraints that clients
// subscribe to (xRFC TP2, "Dynamically Generated Cacheable xDS Resources"). It is a [Source]; see
// [Store.OnDemand] for what that means for the type. Collections have the members that are set in the
// store.
//
// f returns the resource for a demand, or nil if there is none: for its name, its constraints and, if
// the demand is of one client only, its node. An error is sent in place of the resource (xRFC TP3), with
// its status: those other than NOT_FOUND and PERMISSION_DENIED let clients keep what they have. The
// resource, made by [NewResource], should have the dynamic parameters that were chosen: caching proxies
// and clients find the subscriptions by them (TP2, "Dynamic Parameters"). One that must not be cached is
// computed again for each subscriber.
//
// f is called when the first client subscribes, and again on [Store.Recompute]. The clients share the
// result; it is dropped after the last of them has left, and ctx ends. f is called without locks, by as
// many goroutines at a time as there are CPUs, and may take its time. If it panics, the clients are sent
// an INTERNAL error, and the panic is logged.
func (s *Store) Compute(typeURL string, f func(ctx context.Context, d *Demand) (*Resource, error)) {
	c := &computer{store: s, f: f, jobs: map[*Demand]*job{}}
	s.OnDemand(typeURL, c.demand)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.demands.sourceOf(typeURL).recompute = c.compute
}

// Recompute computes the resources of a type again, without waiting for that: for all constraints of
// one name or, if it is empty, for all names. Only clients whose resource changed are sent anything.
// It does nothing for a type without [Store.Compute].
func (s *Store) Recompute(typeURL, name string) {
	s.mu.RLock()
	var recompute func([]*Demand)
	if source := s.demands.sourceOf(typeURL); source != nil {
		recompute = source.recompute
	}
	s.mu.RUnlock()
	if recompute != nil {
		recompute(s.demandsOf(typeURL, name))
	}
}

// computer calls the function of Store.Compute for demands.
type computer struct {
	store *Store
	f     func(ctx context.Context, d *Demand) (*Resource, error)

	mu sync.Mutex
	// jobs are the demands to compute and those in progress.
	jobs map[*Demand]*job
	// queue are those to compute. Each is in jobs, unless the demand has ended.
	queue []*Demand
	// workers counts the goroutines; there are none if there is nothing to compute.
	workers int
}

// job is a computation that waits, or is in progress.
type job struct {
	// cancel is nil while the job waits.
	cancel context.CancelFunc
	// again is set if it is to be computed again, as the result may be based on older data.
	again bool
}

func (c *computer) demand(begun, ended []*Demand) {
	c.compute(begun)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range ended {
		if j := c.jobs[d]; j != nil && j.cancel != nil {
			j.cancel()
			j.again = false
		} else {
			delete(c.jobs, d)
		}
	}
}

// compute queues demands, and starts workers for them.
func (c *computer) compute(demands []*Demand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range demands {
		switch j := c.jobs[d]; {
		case j == nil:
			c.jobs[d] = new(job)
			c.queue = append(c.queue, d)
		case j.cancel != nil:
			j.again = true
		}
	}
	// The workers that there are may be busy for long. One that finds nothing left ends.
	for more := len(c.queue); more > 0 && c.workers < runtime.GOMAXPROCS(0); more-- {
		c.workers++
		go c.work()
	}
}

// work computes until nothing is left.
func (c *computer) work() {
	for d, ctx := c.next(); d != nil; d, ctx = c.next() {
		var answer func(*Tx)
		if d.Collection() {
			answer = func(tx *Tx) { tx.Answer(d, nil) }
		} else if r, err := c.call(ctx, d); err != nil {
			answer = func(tx *Tx) { tx.AnswerError(d, statusOf(err)) }
		} else {
			answer = func(tx *Tx) { tx.Answer(d, r) }
		}
		if _, err := c.store.Update(answer); err != nil {
			// The resource is another one than was asked for.
			_, _ = c.store.Update(func(tx *Tx) { tx.AnswerError(d, status.New(codes.Internal, err.Error())) })
		}
		c.done(d)
	}
}

// next returns a demand to compute, nil if there is none and the worker ends.
func (c *computer) next() (*Demand, context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 {
		d := c.queue[0]
		c.queue = c.queue[1:]
		if j := c.jobs[d]; j != nil && j.cancel == nil {
			var ctx context.Context
			ctx, j.cancel = context.WithCancel(context.Background())
			return d, ctx
		}
	}
	c.queue = nil
	c.workers--
	return nil, nil
}

// done ends a computation after its result was stored, so that it cannot replace a later one.
func (c *computer) done(d *Demand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[d]
	j.cancel()
	if !j.again {
		delete(c.jobs, d)
		return
	}
	*j = job{}
	c.queue = append(c.queue, d)
}

func (c *computer) call(ctx context.Context, d *Demand) (_ *Resource, err error) {
	defer func() {
		if r := recover(); r != nil {
			logger.Errorf("computing %s %q panicked: %v\n%s", d.TypeURL, d.Name, r, debug.Stack())
			err = status.Errorf(codes.Internal, "the control plane failed to compute %s %q; its log has the reason", d.TypeURL, d.Name)
		}
	}()
	return c.f(ctx, d)
}

// statusOf returns the status to send for an error.
func statusOf(err error) *status.Status {
	st := status.Convert(err)
	if st.Code() == codes.OK {
		st = status.New(codes.Unknown, fmt.Sprint(err))
	}
	return st
}
