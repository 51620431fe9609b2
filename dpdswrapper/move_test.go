package dpdswrapper_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsresource"
)

// A wrapper runs on the goroutines of its callers, with any number of watches.
func TestNoGoroutinePerWatch(t *testing.T) {
	f := newFixture(t, authorities)
	f.silent = true
	before := runtime.NumGoroutine()
	for i := range 1000 {
		f.Watch(xdsresource.ClusterType, name("a", clusterType, fmt.Sprint(i)), new(above))
		f.WatchCollection(xdsresource.ClusterType, name("a", clusterType, fmt.Sprint(i, "/*")), new(crowd))
	}
	f.dpds("for-a", only(clusterType, "v", "1"))
	f.dpds("for-a", only(clusterType, "v", "2"))
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("there were %d goroutines before the watches, and %d after", before, after)
	}
}
