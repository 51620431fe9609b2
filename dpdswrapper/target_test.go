package dpdswrapper_test

import (
	"slices"
	"testing"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/xdsclient"
)

// gRFC A71 has a client per target: the watches of a channel are for its target, also after a
// move. A DPDS resource is for all targets.
func TestWatchesAreForTheTarget(t *testing.T) {
	t.Parallel()
	f := newFixture(t, authorities)
	targets := []string{"xds:///one", "xds:///two"}
	for _, target := range targets {
		c := f.wrapper.ForTarget(target)
		if c.Bootstrap() != f.cfg {
			t.Error("a target has another bootstrap than the client")
		}
		c.Watch(xdsresource.ListenerType, listenerA, new(above))
		c.Watch(xdsresource.ClusterType, "old-style", new(above))
		c.WatchCollection(xdsresource.ClusterType, name("a", clusterType, "*"), new(crowd))
	}
	f.Watch(xdsresource.ListenerType, listenerA, new(above))
	if got := f.find("DPDS").client.target; got != "" {
		t.Errorf("the DPDS resource is watched for target %q, want none", got)
	}
	check := func(typ *xdsclient.ResourceType, name string, want ...string) {
		t.Helper()
		f.mu.Lock()
		defer f.mu.Unlock()
		var got []string
		for _, w := range f.live {
			if w.typ == typ && w.name == name {
				got = append(got, w.client.target)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s is watched for %q, want %q", name, got, want)
		}
	}
	check(xdsresource.ClusterType, "old-style", targets...)
	for _, value := range []string{"direct", "via_proxy"} {
		f.dpds("for-a", only(listenerType, "listener_type", value))
		check(xdsresource.ListenerType, listenerA, targets[0], targets[1], "target")
		check(xdsresource.ClusterType, name("a", clusterType, "*"), targets...)
	}
}
