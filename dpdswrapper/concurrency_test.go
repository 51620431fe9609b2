package dpdswrapper_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// serialWatcher checks that it is called by one goroutine at a time.
type serialWatcher struct {
	t    *testing.T
	in   atomic.Int32
	last any
}

func (w *serialWatcher) ResourceChanged(value any, err error, done func()) {
	w.enter()
	if err == nil {
		w.last = value
	}
	w.in.Add(-1)
	done()
}

func (w *serialWatcher) AmbientError(_ error, done func()) {
	w.enter()
	w.in.Add(-1)
	done()
}

func (w *serialWatcher) enter() {
	if w.in.Add(1) != 1 {
		w.t.Error("the watcher is called concurrently")
	}
}

// The calls to one watcher are serial, also across a move, even if the client below calls each
// watcher from its own goroutine. The done of each call is called once.
func TestCallsAreSerialUnderConcurrentMovesAndStops(t *testing.T) {
	t.Parallel()
	f := newFixture(t, authorities)
	f.silent = true
	stay := make([]*serialWatcher, 4)
	for i := range stay {
		stay[i] = &serialWatcher{t: t}
		f.Watch(xdsresource.ClusterType, name("a", clusterType, fmt.Sprint(i)), stay[i])
	}
	var calls, dones atomic.Int64
	var all sync.WaitGroup
	const rounds = 500
	work := func(seed uint64, f func(r *rand.Rand)) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, 5))
			for range rounds {
				f(r)
			}
		})
	}
	for seed := range uint64(3) {
		work(seed, func(r *rand.Rand) {
			if b := f.pick(r); b != nil {
				calls.Add(1)
				b.randomCall(r, func() { dones.Add(1) })
			}
		})
	}
	work(10, func(r *rand.Rand) { f.wrapper.SetConstraints(only(clusterType, "v", fmt.Sprint(r.IntN(3)))) })
	work(11, func(r *rand.Rand) {
		stop := f.Watch(xdsresource.ClusterType, name("a", clusterType, "x"), &serialWatcher{t: t})
		go stop()
		stop()
	})
	all.Wait()
	if calls.Load() != dones.Load() {
		t.Errorf("%d calls below, done with %d times", calls.Load(), dones.Load())
	}
	// In the end each watcher has the variant of its last constraints.
	f.wrapper.SetConstraints(only(clusterType, "v", "last"))
	for _, b := range slices.Clone(f.live) {
		if b.typ == xdsresource.ClusterType {
			b.change(b.String(), nil)
		}
	}
	for i, w := range stay {
		want := (&fakeWatch{typ: xdsresource.ClusterType, name: name("a", clusterType, fmt.Sprint(i)), constraints: exact("v", "last")}).String()
		if w.last != want {
			t.Errorf("watcher %d has %v, want %v", i, w.last, want)
		}
	}
}

// busyWatcher blocks its first call until the test releases it.
type busyWatcher struct {
	began, end chan struct{}
	calls      chan any
}

func (w *busyWatcher) ResourceChanged(value any, _ error, done func()) {
	defer done()
	if value == "old" {
		close(w.began)
		<-w.end
	}
	w.calls <- value
}

func (w *busyWatcher) AmbientError(error, func()) {}

// The first call of the new watch below waits for the last one of the old watch.
func TestNewVariantWaitsForTheCallOfTheOldOne(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	w := &busyWatcher{began: make(chan struct{}), end: make(chan struct{}), calls: make(chan any, 2)}
	f.Watch(xdsresource.ClusterType, "c", w)
	var calls sync.WaitGroup
	old := f.find("Cluster")
	calls.Go(func() { old.change("old", nil) })
	<-w.began
	f.wrapper.SetConstraints(only(clusterType, "v", "1"))
	calls.Go(func() { f.find("Cluster").change("new", nil) })
	select {
	case value := <-w.calls:
		w.calls <- value
	case <-time.After(20 * time.Millisecond): // the absence of a call cannot be waited for
	}
	close(w.end)
	calls.Wait()
	if first, second := <-w.calls, <-w.calls; first != "old" || second != "new" {
		t.Errorf("the watcher got %v and then %v", first, second)
	}
}

// pick returns any live watch.
func (f *fixture) pick(r *rand.Rand) *fakeWatch {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.live) == 0 {
		return nil
	}
	return f.live[r.IntN(len(f.live))]
}

// randomCall calls the watcher with a resource or an error.
func (w *fakeWatch) randomCall(r *rand.Rand, done func()) {
	var value any = w.String()
	if w.typ == xdsresource.DynamicParameterConstraintsType {
		value = &xdsresource.DynamicParameterConstraintsMap{Constraints: dynparam.ByType{}}
	}
	switch r.IntN(3) {
	case 0:
		w.watcher.ResourceChanged(value, nil, done)
	case 1:
		w.watcher.ResourceChanged(nil, oracleErrs[r.IntN(len(oracleErrs))], done)
	default:
		w.watcher.AmbientError(errUnreachable, done)
	}
}

var _ xdsclient.Watcher = (*serialWatcher)(nil)
