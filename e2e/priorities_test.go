package e2e_test

import (
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// No RPC fails while the priority that serves is removed, which closes it at once (gRFC A115), and added
// again: neither one that is on its way, nor a stream that is open, nor one that waits for the next
// priority to connect.
func TestServingPriorityIsRemovedUnderLoad(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		m := newMesh(t)
		first, second := testutils.StartBackend(t, "first"), testutils.StartBackend(t, "second")
		in := func(zone string, priority uint32, b *testutils.Backend) xdsmsg.Locality {
			return xdsmsg.Locality{Zone: zone, Weight: 1, Priority: priority, Endpoints: []xdsmsg.Endpoint{{Addr: b.Addr(), Health: corepb.HealthStatus_HEALTHY}}}
		}
		both := xdsmsg.Endpoints("cluster", in("a", 0, first), in("b", 1, second))
		secondOnly := xdsmsg.Endpoints("cluster", in("b", 0, second))
		m.serve(service, "cluster", first)
		m.set(both)
		cc := m.dial("xds:///" + service)
		l := loadOn(t, cc, first)
		open, err := openStream(testutils.Context(t), cc)
		xdstest.NoError(t, err)
		for range 3 {
			m.set(secondOnly)
			l.await(t, second)
			m.set(both)
			l.await(t, first)
		}
		for range 20 { // faster than the client connects
			m.set(secondOnly)
			m.set(both)
		}
		m.set(secondOnly)
		l.await(t, second)
		l.stop(t)
		end(t, open)
	})
}
