package e2e_test

import (
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	_ "github.com/dynxds/dynxds/balancer/rls"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest/lookup"
)

// toPlugin is a route with the plugin "p".
func toPlugin() *routepb.Route {
	return xdsmsg.Route(xdsmsg.Prefix(""), &routepb.RouteAction{
		ClusterSpecifier: &routepb.RouteAction_ClusterSpecifierPlugin{ClusterSpecifierPlugin: "p"}})
}

// byPlugin is a chain whose routes may have the plugin.
func byPlugin(plugin *routepb.ClusterSpecifierPlugin, routes ...*routepb.Route) []proto.Message {
	all := chain(service, routes...)
	all[1].(*routepb.RouteConfiguration).ClusterSpecifierPlugins = []*routepb.ClusterSpecifierPlugin{plugin}
	return all
}

// Routes move between a plugin and a cluster, the service names other clusters, and the plugin has other configs, while RPCs run; none fails.
func TestLookupsChangeUnderLoad(t *testing.T) {
	overLinks(t, func(t *testing.T) {
		m, l := newMesh(t), lookup.Start(t)
		all := backends(t, "a", "b", "c")
		l.Send("", "ca")
		const shortLived = `max_age { seconds: 1 }`
		m.set(byPlugin(l.Plugin(shortLived), toPlugin()), clusterOf("ca", all[0]), clusterOf("cb", all[1]), clusterOf("cc", all[2]))
		load := loadOn(t, m.dial("xds:///"+service), all[0])
		load.await(t, all[0])
		l.Send("", "cb")
		load.await(t, all[1])
		m.set(byPlugin(l.Plugin(shortLived), toCluster("cc")))
		load.await(t, all[2])
		m.set(byPlugin(l.Plugin(shortLived), toPlugin()))
		load.await(t, all[1])
		l.Send("", "ca")
		m.set(byPlugin(l.Plugin(shortLived+` default_target: "cc"`), toPlugin()))
		load.await(t, all[0])
		m.set(chain(service, toCluster("ca")))
		load.await(t, all[0])
		load.Stop(t)
	})
}
