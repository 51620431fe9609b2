package statuspage

import (
	"testing"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

func TestGraphLeadsFromTheListenerToTheEndpoints(t *testing.T) {
	backend := testutils.StartBackend(t, "b")
	_, conn := startChannel(t, "graph",
		xdsmsg.DefaultListener("service", "routes"),
		xdsmsg.RouteConfig("routes", "service",
			xdsmsg.WeightedRoute("/grpc.testing", xdsmsg.Weighted{Cluster: "a", Weight: 3}, xdsmsg.Weighted{Cluster: "b", Weight: 1}),
			xdsmsg.PrefixRoute("", "b")),
		xdsmsg.EDSCluster("a", ""), xdsmsg.EDSCluster("b", ""),
		xdsmsg.SimpleEndpoints("a", backend.Addr()), xdsmsg.SimpleEndpoints("b", backend.Addr()),
	)
	xdstest.NoError(t, call(t, conn))

	h := quick()
	g := await(t, h, "graph", func(g graphView) bool {
		xdstest.NoError(t, call(t, conn)) // until one has gone to each cluster
		return len(g.Clusters) == 2 && len(g.Clusters[0].Priorities) == 1 && g.Clusters[0].Priorities[0].State == "READY"
	})
	if g.Listener.Name != "service" || g.Listener.State != "ACKED" || g.RouteConfig.Name != "routes" || g.Host.Domains[0] != "service" {
		t.Errorf("Listener %+v, RouteConfiguration %+v, host %+v", g.Listener, g.RouteConfig, g.Host)
	}
	xdstest.Equal(t, "routes", []routeView{
		{Index: 0, Match: "prefix /grpc.testing", To: []destinationView{{Cluster: "a", ID: clusterID("a"), Percent: 75}, {Cluster: "b", ID: clusterID("b"), Percent: 25}}},
		{Index: 1, Match: "any method", To: []destinationView{{Cluster: "b", ID: clusterID("b"), Percent: 100}}},
	}, g.Routes.Items)
	endpoint := g.Clusters[0].Priorities[0].Localities[0].Endpoints[0]
	if endpoint.Addresses[0] != backend.Addr() || endpoint.State != "READY" {
		t.Errorf("endpoint %+v, want %s, READY", endpoint, backend.Addr())
	}
}
