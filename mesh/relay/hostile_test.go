package relay_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/relay"
)

// A client that never reads holds up neither the others nor the control plane.
func TestClientThatNeverReads(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "delta")
	set := func(n int) {
		c := xdsmsg.EDSCluster("c", "")
		c.AltStatName = fmt.Sprint(n, strings.Repeat("x", 1<<20)) // more than flow control lets through
		r.up.Set(t, c)
	}
	set(0)
	deaf, other := r.delta(), r.delta()
	subscribe(deaf, node("deaf"), clusterType, "c")
	subscribe(other, node("other"), clusterType, "c")
	wantOnly(other, "c")
	for n := range 20 {
		set(n + 1)
		for v := ""; v != r.version(clusterType, "c"); { // what lies between may be left out
			v = wantOnly(other, "c").GetVersion()
		}
	}
	if s := r.Stats(); s.Cached != 1 {
		t.Errorf("got %+v, want one version of one resource", s)
	}
}

// invent subscribes to a resource of each of n types that a client invents. It returns how many of them are
// refused, once all are answered.
func (r *rig) invent(d *deltaStream, id, format string, n int) (refused int) {
	r.t.Helper()
	for i := range n {
		subscribe(d, node(id), fmt.Sprintf(format, i), "x")
	}
	for answers := 0; answers < n; {
		resp := d.receive()
		answers += len(resp.GetRemovedResources()) + len(resp.GetResourceErrors())
		for _, e := range resp.GetResourceErrors() {
			if code := codes.Code(e.GetErrorDetail().GetCode()); code != codes.ResourceExhausted {
				r.t.Fatalf("got %v, want RESOURCE_EXHAUSTED", e)
			}
			refused++
		}
	}
	return refused
}

// Clients that invent types of resources are refused more than a number of them on a stream upstream. Types that differ from those of
// xDS in the prefix of their URL are inventions too. Subscriptions to types of xDS go on.
func TestInventedTypes(t *testing.T) {
	t.Parallel()
	for name, format := range map[string]string{"names": "type.googleapis.com/t%d", "prefixes": "p%d/envoy.config.cluster.v3.Cluster"} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			r := newRig(t, nil, "delta")
			r.up.Set(t, xdsmsg.EDSCluster("c", ""))
			stays := r.subscriber("stays", "c")
			inventive := r.delta()
			xdstest.Equal(t, "types that were refused", 200-127, r.invent(inventive, "inventive", format, 200))
			subscribe(inventive, nil, xdsmsg.RouteType, "x") // is no invention
			for known := false; !known; {
				known = len(inventive.receive().GetRemovedResources()) > 0
			}
			inventive.stop()
			r.await("nothing of the client is left", func(s relay.Stats) bool { return s.Upstreams == 1 && s.Subscriptions == 1 })
			r.up.Set(t, xdsmsg.EDSCluster("c", "changed"))
			wantOnly(stays, "c")
		})
	}
}
