package dpdswrapper_test

import (
	"fmt"
	"testing"

	"github.com/dynxds/dynxds/dpdswrapper"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// quiet is a watcher that ignores everything.
type quiet struct{}

func (quiet) ResourceChanged(_ any, _ error, done func()) { done() }
func (quiet) AmbientError(_ error, done func())           { done() }

// BenchmarkMove changes the constraints of all watches of a type. Its time is linear: ns/watch
// does not depend on their number.
func BenchmarkMove(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := newFixture(b, authorities)
			f.silent = true
			for i := range n {
				f.Watch(xdsresource.ClusterType, name("a", clusterType, fmt.Sprint(i)), quiet{})
			}
			i := 0
			for b.Loop() {
				i++
				f.dpds("for-a", only(clusterType, "v", fmt.Sprint(i)))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/watch")
		})
	}
}

// BenchmarkEvent is one update of a resource without constraints.
func BenchmarkEvent(b *testing.B) {
	f := newFixture(b)
	f.Watch(xdsresource.ClusterType, "c", quiet{})
	below := f.find("Cluster").watcher
	var value any = "value"
	done := func() {}
	b.ReportAllocs()
	for b.Loop() {
		below.ResourceChanged(value, nil, done)
	}
}

// nothing is a client that does nothing.
type nothing struct{ *fakeClient }

func (n nothing) ForTarget(string) xdsclient.LocatorClient { return n }

func (nothing) WatchLocator(*xdsclient.ResourceType, string, dynparam.Constraints, xdsclient.Watcher) func() {
	return func() {}
}

// BenchmarkWatch starts and stops a watch without constraints.
func BenchmarkWatch(b *testing.B) {
	w := dpdswrapper.New(nothing{newFakeClient(b, config())}).ForTarget("")
	b.ReportAllocs()
	for b.Loop() {
		w.Watch(xdsresource.ClusterType, "c", quiet{})()
	}
}
