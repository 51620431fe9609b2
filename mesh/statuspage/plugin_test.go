package statuspage

import (
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	_ "github.com/dynxds/dynxds/balancer/rls"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/lookup"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/testutils"
)

// The graph has a cluster specifier plugin in the place of the Cluster that it chooses for each RPC.
func TestGraphWithAPlugin(t *testing.T) {
	const service = "looked-up"
	plane, l, b := meshtest.StartServer(t), lookup.Start(t), testutils.StartBackend(t, "b")
	l.Send("", "chosen")
	routes := xdsmsg.RouteConfig("routes", service, xdsmsg.Route(xdsmsg.Prefix(""), &routepb.RouteAction{
		ClusterSpecifier: &routepb.RouteAction_ClusterSpecifierPlugin{ClusterSpecifierPlugin: "p"}}))
	routes.ClusterSpecifierPlugins = []*routepb.ClusterSpecifierPlugin{l.Plugin("")}
	plane.Set(t, xdsmsg.DefaultListener(service, "routes"), routes, xdsmsg.EDSCluster("chosen", ""), xdsmsg.SimpleEndpoints("chosen", b.Addr()))
	xdstest.NoError(t, call(t, dialTo(t, plane, "plugin", service)))
	await(t, quick(), "graph", func(g graphView) bool {
		if len(g.Clusters) != 1 {
			return false
		}
		c := g.Clusters[0]
		return c.Name == "cluster_specifier_plugin:p" && c.Kind == "plugin" && c.Policy == "rls_experimental" && c.State == "READY" &&
			c.Resource == nil && c.Endpoints == 0
	})
}
