package dpdswrapper_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
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

// The layer above keeps the old resource until the new variant answers. An error that the
// client does not have it withdraws the old one; any other error is ambient.
func TestAnswerOfTheNewVariant(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		value any
		err   error
		want  string
	}{
		{"a resource replaces the old one", "new", nil, "new"},
		{"does not exist: withdrawn", nil, errDoesNotExist, "!does not exist"},
		{"NOT_FOUND: withdrawn", nil, errNotFound, "!NotFound"},
		{"PERMISSION_DENIED: withdrawn", nil, errDenied, "!PermissionDenied"},
		{"another code: ambient", nil, errInternal, "~Internal"},
		{"invalid: ambient", nil, errInvalid, "~invalid"},
		{"unreachable: ambient", nil, errUnreachable, "~unreachable"},
		{"late, but not missing: ambient", nil, errTimeout, "~timeout"},
		{"refused by the client below: ambient", nil, errRefused, "~configuration"},
	}
	for _, tt := range tests {
		xdstest.Parallel(t, tt.name, func(t *testing.T) {
			f, w, _ := moved(t)
			f.find("Cluster").change(tt.value, tt.err)
			w.expect(t, tt.want)
		})
	}
}

func TestAmbientErrorsEndWithAnAnswer(t *testing.T) {
	t.Parallel()
	f, w, _ := moved(t)
	f.find("Cluster").change(nil, errUnreachable)
	f.find("Cluster").change(nil, errTimeout)
	w.expect(t, "~unreachable", "~timeout")
	// Once the new variant is there, it counts, and an error in its place is one.
	f.find("Cluster").change("new", nil)
	f.find("Cluster").change(nil, errInvalid)
	w.expect(t, "new", "!invalid")
}

func TestWithdrawnIsWithdrawn(t *testing.T) {
	t.Parallel()
	f, w, _ := moved(t)
	f.find("Cluster").change(nil, errDenied)
	f.find("Cluster").change(nil, errUnreachable)
	w.expect(t, "!PermissionDenied", "!unreachable")
}

// Without an old resource, errors are not ambient.
func TestErrorsOfAMoveWithoutAnOldResource(t *testing.T) {
	t.Parallel()
	for _, before := range []error{nil, errUnreachable} {
		f, w := newFixture(t, authorities), new(above)
		f.Watch(xdsresource.ClusterType, clusterA, w)
		f.dpds("for-a", only(clusterType, "v", "1"))
		if before != nil {
			f.find("Cluster").change(nil, before)
			w.expect(t, "!unreachable")
		}
		f.dpds("for-a", only(clusterType, "v", "2"))
		f.find("Cluster").change(nil, errInvalid)
		w.expect(t, "!invalid")
	}
}

func TestAmbientErrorsPassThrough(t *testing.T) {
	t.Parallel()
	f, w, _ := moved(t)
	f.find("Cluster").change("new", nil)
	f.find("Cluster").ambient(errUnreachable)
	w.expect(t, "new", "~unreachable")
}

// The last calls of a stopped watch below may be late.
func TestLateCallsForAnOldVariantAreDropped(t *testing.T) {
	t.Parallel()
	f, w := newFixture(t, authorities), new(above)
	f.Watch(xdsresource.ClusterType, clusterA, w)
	f.dpds("for-a", only(clusterType, "v", "1"))
	old := f.find("Cluster")
	f.dpds("for-a", only(clusterType, "v", "2"))
	old.change("old", nil)
	old.change(nil, errDoesNotExist)
	old.ambient(errInvalid)
	w.expect(t)
	f.find("Cluster").change("new", nil)
	w.expect(t, "new")
}

func TestMoveDuringAMove(t *testing.T) {
	t.Parallel()
	f, w, _ := moved(t)
	f.dpds("for-a", only(clusterType, "v", "3"))
	f.expect("[", "+Cluster "+clusterA+" {v=3}", "-Cluster "+clusterA+" {v=2}", "]")
	// The old resource is still kept.
	f.find("Cluster").change(nil, errUnreachable)
	w.expect(t, "~unreachable")
	// So it is on the way back, which asks again.
	f.dpds("for-a", only(clusterType, "v", "1"))
	f.expect("[", "+Cluster "+clusterA+" {v=1}", "-Cluster "+clusterA+" {v=3}", "]")
	f.find("Cluster").change(nil, errNotFound)
	w.expect(t, "!NotFound")
}

func TestStopDuringAMove(t *testing.T) {
	t.Parallel()
	f, w, stop := moved(t)
	below := f.find("Cluster")
	stop()
	f.expect("-Cluster "+clusterA+" {v=2}", "-DPDS for-a")
	below.change("new", nil)
	below.ambient(errUnreachable)
	w.expect(t)
}

func TestLateWatchesStartAtOnceWithTheNewConstraints(t *testing.T) {
	t.Parallel()
	f, _, _ := moved(t)
	w := new(above)
	f.Watch(xdsresource.ClusterType, clusterA, w)
	f.expect("+Cluster " + clusterA + " {v=2}")
	f.live[len(f.live)-1].change(nil, errInvalid)
	w.expect(t, "!invalid")
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
