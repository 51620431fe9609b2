package dpdswrapper_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

var (
	listenerA = name("a", listenerType, "l")
	clusterA  = name("a", clusterType, "c")
)

// moved returns a fixture with a watch that has a resource, "old", and has been
// moved since.
func moved(t *testing.T) (*fixture, *above, func()) {
	f, w := newFixture(t, authorities), new(above)
	stop := f.Watch(xdsresource.ClusterType, clusterA, w)
	f.dpds("for-a", only(clusterType, "v", "1"))
	f.find("Cluster").change("old", nil)
	w.expect(t, "old")
	f.dpds("for-a", only(clusterType, "v", "2"))
	w.expect(t)
	f.log = nil
	return f, w, stop
}

func TestALateAnswerOfDPDSIsIgnored(t *testing.T) {
	t.Parallel()
	f := newFixture(t, authorities)
	stop := f.Watch(xdsresource.ClusterType, clusterA, new(above))
	dpds := f.find("DPDS")
	stop()
	dpds.change(&xdsresource.DynamicParameterConstraintsMap{}, nil)
	f.expect("+DPDS for-a", "-DPDS for-a")
}

// gRFC A88's flow control: the done of the layer above is that of the layer below.
func TestDoneIsPassedDown(t *testing.T) {
	t.Parallel()
	f, w, _ := moved(t)
	w.keep = true
	var change, ambient int
	below := f.find("Cluster").watcher
	below.ResourceChanged("new", nil, func() { change++ })
	below.AmbientError(errUnreachable, func() { ambient++ })
	expect := func(changes, ambients int) {
		t.Helper()
		if change != changes || ambient != ambients {
			t.Errorf("done was called %d and %d times, want %d and %d", change, ambient, changes, ambients)
		}
	}
	expect(0, 0)
	w.dones[1]()
	expect(0, 1)
	w.dones[0]()
	expect(1, 1)
}

// A watcher may stop or start watches, and set constraints, while it is called.
func TestWatchersMayCallBack(t *testing.T) {
	t.Parallel()
	xdstest.Parallel(t, "stop", func(t *testing.T) {
		f, w, stop := moved(t)
		w.after = stop
		f.find("Cluster").change("new", nil)
		f.expect("-Cluster "+clusterA+" {v=2}", "-DPDS for-a")
	})
	xdstest.Parallel(t, "watch", func(t *testing.T) {
		f, w, _ := moved(t)
		w.after = func() { f.Watch(xdsresource.ClusterType, clusterA+"2", new(above)) }
		f.find("Cluster").change("new", nil)
		f.expect("+Cluster " + clusterA + "2 {v=2}")
	})
	xdstest.Parallel(t, "set constraints", func(t *testing.T) {
		f, w, _ := moved(t)
		w.after = func() { f.wrapper.SetConstraints(only(clusterType, "shard", "7")) }
		f.find("Cluster").change("new", nil)
		f.expect("[", "+Cluster "+clusterA+" {shard=7, v=2}", "-Cluster "+clusterA+" {v=2}", "]")
	})
}

// A wrapper runs on the goroutines of its callers, with any number of watches.
func TestNoGoroutinePerWatch(t *testing.T) {
	f := newFixture(t, authorities)
	f.silent = true
	before := runtime.NumGoroutine()
	for i := range 1000 {
		f.Watch(xdsresource.ClusterType, name("a", clusterType, fmt.Sprint(i)), quiet{})
		f.WatchCollection(xdsresource.ClusterType, name("a", clusterType, fmt.Sprint(i, "/*")), new(crowd))
	}
	f.dpds("for-a", only(clusterType, "v", "1"))
	f.dpds("for-a", only(clusterType, "v", "2"))
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("there were %d goroutines before the watches, and %d after", before, after)
	}
}
