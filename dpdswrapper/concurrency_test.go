package dpdswrapper_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// lastWatcher has the last resource that it got.
type lastWatcher struct{ last any }

func (w *lastWatcher) ResourceChanged(value any, err error, done func()) {
	if err == nil {
		w.last = value
	}
	done()
}

func (w *lastWatcher) AmbientError(_ error, done func()) { done() }

// While a client calls watchers, watches move and stop. The done of each call is called once.
func TestCallsDuringMovesAndStops(t *testing.T) {
	t.Parallel()
	f := newFixture(t, authorities)
	f.silent = true
	stay := make([]*lastWatcher, 4)
	for i := range stay {
		stay[i] = new(lastWatcher)
		f.Watch(xdsresource.ClusterType, name("a", clusterType, fmt.Sprint(i)), stay[i])
	}
	var calls, dones atomic.Int64
	var all sync.WaitGroup
	const rounds = 1500
	work := func(seed uint64, f func(r *rand.Rand)) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, 5))
			for range rounds {
				f(r)
			}
		})
	}
	work(0, func(r *rand.Rand) {
		if b := f.pick(r); b != nil {
			calls.Add(1)
			b.randomCall(r, func() { dones.Add(1) })
		}
	})
	work(10, func(r *rand.Rand) { f.wrapper.SetConstraints(only(clusterType, "v", fmt.Sprint(r.IntN(3)))) })
	work(11, func(r *rand.Rand) {
		stop := f.Watch(xdsresource.ClusterType, name("a", clusterType, "x"), new(lastWatcher))
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
