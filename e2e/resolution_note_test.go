package e2e_test

import (
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/testutils"
)

// gRFC A88, resolution_note: where no endpoint can be reached, RPCs are told what the
// client knows against the configuration that it goes by.
func TestErrorsTellWhatIsWrongWithTheConfiguration(t *testing.T) {
	t.Parallel()
	faulty := func(name string) proto.Message {
		c := xdsmsg.EDSCluster(name, "")
		c.LbPolicy = clusterpb.Cluster_MAGLEV
		return c
	}
	for _, tc := range []struct {
		name string
		// around are the resources beside the EDS cluster "c" and its endpoints.
		around []proto.Message
		// bad have faults, and good are the same resources without. texts say what the
		// faults are.
		bad, good []proto.Message
		texts     []string
	}{
		{"Cluster", nil, []proto.Message{faulty("c")}, []proto.Message{xdsmsg.EDSCluster("c", "")}, []string{`Cluster "c" is invalid`, "lb_policy"}},
		{"RouteConfiguration", nil,
			[]proto.Message{xdsmsg.RouteConfig(service, "", toCluster("c"))}, []proto.Message{xdsmsg.RouteConfig(service, service, toCluster("c"))},
			[]string{"RouteConfiguration", "is invalid", "domains"}},
		{"aggregate Cluster",
			[]proto.Message{xdsmsg.RouteConfig(service, service, toCluster("a")), xdsmsg.AggregateCluster("a", "c")},
			[]proto.Message{xdsmsg.AggregateCluster("a")}, []proto.Message{xdsmsg.AggregateCluster("a", "c")},
			[]string{`Cluster "a" is invalid`, "clusters"}},
	} {
		parallel(t, tc.name, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b1")
			m.serve(service, "c", backend)
			m.set(tc.around...)
			cc := m.dial("xds:///" + service)
			mustReach(t, cc, unary, backend)
			backend.Stop()
			node := []string{"connection refused", `"` + t.Name() + `"`}
			untilTold(t, cc, node, "is invalid", "unreachable")

			m.set(tc.bad...)
			faults := append(tc.texts, node...)
			untilTold(t, cc, faults, "unreachable")
			m.Stop()
			untilTold(t, cc, append(faults, "unreachable since", m.Addr()))
			m.set(tc.good...)
			m.restart()
			untilTold(t, cc, node, "is invalid", "unreachable")
		})
	}
}

// What an RPC is told where all endpoints are unhealthy, or a name does not resolve.
func TestErrorsWithoutEndpointsTellWhatIsWrongWithTheConfiguration(t *testing.T) {
	t.Parallel()
	m, backend := newMesh(t), testutils.StartBackend(t, "b1")
	m.serve(service, "c", backend)
	cc := m.dial("xds:///" + service)
	mustReach(t, cc, unary, backend)
	m.set(xdsmsg.Endpoints("c"))
	node := `"` + t.Name() + `"`
	untilTold(t, cc, []string{"has no endpoint", node}, "unreachable")
	m.Stop()
	untilTold(t, cc, []string{"has no endpoint", node, "unreachable since", m.Addr()})
}
