package e2e_test

import (
	"testing"
	"time"

	"github.com/dynxds/dynxds/controlplane"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// TestDeletedClusterServesUntilRoutesHaveMoved: a cluster is deleted around the time when routes move
// away from it, and the client, which believes deletions at once (gRFC A88), does not hear of it as
// long as its routes name the cluster. No RPC fails.
func TestDeletedClusterServesUntilRoutesHaveMoved(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		move := func(m *mesh, after *testutils.Backend) {
			m.set(append(clusterOf("new", after), xdsmsg.RouteConfig(service, service, xdsmsg.PrefixRoute("", "new")))...)
		}
		for _, order := range []struct {
			name string
			// first is what happens before the old cluster is deleted, then what happens after.
			first, then func(m *mesh, after *testutils.Backend)
		}{
			{"routes move first", move, func(*mesh, *testutils.Backend) {}},
			{"routes move last", func(*mesh, *testutils.Backend) {}, move},
		} {
			parallel(t, order.name, func(t *testing.T) {
				m := newMesh(t, failOnDataErrors)
				m.Server = xdstest.StartServer(t, append(linkOf(t), testutils.ControlPlaneOptions(
					controlplane.Options{RemovalDelay: time.Hour, NotFoundErrors: true}))...)
				before, changed, after := testutils.StartBackend(t, "before"), testutils.StartBackend(t, "changed"), testutils.StartBackend(t, "after")
				m.serve(service, "old", before)
				cc := m.dial("xds:///" + service)
				l := loadOn(t, cc, before)

				// Until it is heard, the client names the old cluster.
				resume := m.StallReads()
				order.first(m, after)
				m.Delete(t, xdsmsg.ClusterType, "old")
				// What was sent before this has been taken in when this is in use.
				m.set(xdsmsg.SimpleEndpoints("old", changed.Addr()))
				l.await(t, changed)
				m.Delete(t, xdsmsg.EndpointType, "old")
				order.then(m, after)
				resume()
				l.await(t, after)
				l.stop(t)
			})
		}
	})
}
