package resolver

import (
	"fmt"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// superseding is how many versions follow each other without an answer for what they need.
const superseding = 100

// Routes that are replaced before their clusters have answered release the clusters that neither the routes in use nor
// the newest ones name. The others stay watched all the time.
func TestReplacedRoutesReleaseTheirClusters(t *testing.T) {
	t.Parallel()
	f := configured(t)
	f.answer("RouteConfiguration R", routes("R", "a", "kept", "b0"))
	kept := f.watches["Cluster kept"][0]
	for i := range superseding {
		silent := fmt.Sprint("b", i+1)
		f.keep("RouteConfiguration R", routes("R", "a", "kept", silent))
		f.expectWatches("Listener L", "RouteConfiguration R", "Cluster a", "ClusterLoadAssignment a", "Cluster kept", "Cluster "+silent)
		if f.watches["Cluster kept"][0] != kept {
			t.Fatal("the watch of a cluster that all routes name was replaced")
		}
	}
	f.serve("kept", "2")
	f.serve(fmt.Sprint("b", superseding), "3")
	f.expect("R: a=1 b100=3 kept=2")
}

// The routes that RPCs wait by keep their clusters, answered or not.
func TestFirstRoutesKeepTheirSilentClusters(t *testing.T) {
	t.Parallel()
	f := routed(t, "silent")
	for i := range superseding {
		next := fmt.Sprint("b", i)
		f.keep("RouteConfiguration R", routes("R", next))
		f.expectWatches("Listener L", "RouteConfiguration R", "Cluster silent", "Cluster "+next)
	}
	f.change("RouteConfiguration R", routes("R", "silent"), "R: silent=?")
	f.expectWatches("Listener L", "RouteConfiguration R", "Cluster silent")
}

// A Listener that names one silent RouteConfiguration after the other waits for the last one alone.
func TestReplacedRouteConfigurationsAreReleased(t *testing.T) {
	t.Parallel()
	f := configured(t)
	for i := range superseding {
		next := fmt.Sprint("R", i)
		f.keep("Listener L", toRDS(next))
		f.expectWatches("Listener L", "RouteConfiguration R", "RouteConfiguration "+next, "Cluster a", "ClusterLoadAssignment a")
	}
}

// So does a cluster that names one silent ClusterLoadAssignment after the other.
func TestReplacedAssignmentsAreReleased(t *testing.T) {
	t.Parallel()
	f := configured(t)
	for i := range superseding {
		next := fmt.Sprint("service", i)
		f.change("Cluster a", eds(next), "R: a=1")
		f.expectWatches("Listener L", "RouteConfiguration R", "Cluster a", "ClusterLoadAssignment "+next)
	}
}

// An aggregate cluster releases the clusters that neither the list in use nor the newest one names, at any depth.
func TestReplacedListsOfAnAggregateReleaseTheirClusters(t *testing.T) {
	t.Parallel()
	inUse := []string{"Listener L", "RouteConfiguration R", "Cluster A", "Cluster B", "Cluster C"}
	start := func(t *testing.T) *fixture {
		f := routed(t, "A")
		f.answer("Cluster A", aggregate("B", "C"))
		f.answer("Cluster C", aggregate("D"))
		f.give("B", "D")
		f.expect("R: A=[B=B D=D]")
		return f
	}
	watched := func(more ...string) []string { return append(append([]string{"Cluster D"}, inUse...), more...) }
	xdstest.Parallel(t, "its own", func(t *testing.T) {
		f := start(t)
		for i := range superseding {
			next := fmt.Sprint("n", i)
			f.keep("Cluster A", aggregate("B", next))
			f.expectWatches(watched("Cluster " + next)...)
		}
		f.give("n99")
		f.expect("R: A=[B=B n99=n99]")
	})
	xdstest.Parallel(t, "that of one under it", func(t *testing.T) {
		f := start(t)
		for i := range superseding {
			next := fmt.Sprint("n", i)
			f.answer("Cluster C", aggregate(next))
			xdstest.Equal(t, "the graph", "R: A=[B=B D=D]", f.describe())
			f.expectWatches(watched("Cluster " + next)...)
		}
		f.see()
		f.give("n99")
		f.expect("R: A=[B=B n99=n99]")
	})
	xdstest.Parallel(t, "before it is none any more", func(t *testing.T) {
		f := start(t)
		f.keep("Cluster A", aggregate("B", "n"))
		f.keep("Cluster A", eds("A"))
		f.expectWatches(watched("ClusterLoadAssignment A")...)
	})
	xdstest.Parallel(t, "that of one that only the list in use has", func(t *testing.T) {
		f := start(t)
		f.keep("Cluster A", aggregate("B", "n"))
		for i := range superseding {
			f.answer("Cluster C", aggregate("D", fmt.Sprint("m", i)))
			xdstest.Equal(t, "the graph", "R: A=[B=B D=D]", f.describe())
			f.expectWatches(watched("Cluster n")...)
		}
	})
}

// Names of DNS that are replaced before they have an answer are no longer looked up.
func TestReplacedNamesAreReleased(t *testing.T) {
	t.Parallel()
	f := configured(t)
	t.Cleanup(f.graph.close)
	for i := range superseding {
		f.change("Cluster a", inlined("a", xdsresource.ClusterStrictDNS, fmt.Sprintf("superseded%d.fake:80", i)), "R: a=1")
		if i > 0 {
			names.expectEnd(t, fmt.Sprintf("superseded%d.fake:80", i-1))
		}
	}
}
