package xdsresource

import (
	"errors"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// A StringValue is the config of a plugin in these tests; "bad" is none.
func init() {
	RegisterPlugin("google.protobuf.StringValue", func(from *anypb.Any) (policy, config string, err error) {
		text := new(wrapperspb.StringValue)
		if err := from.UnmarshalTo(text); err != nil || text.Value == "bad" {
			return "", "", errors.New("it is bad")
		}
		return "policy", text.Value, nil
	})
}

// plugin is one of the tests' type.
func plugin(name, value string, optional bool) *routepb.ClusterSpecifierPlugin {
	p := &routepb.ClusterSpecifierPlugin{IsOptional: optional}
	p.Extension = &corepb.TypedExtensionConfig{Name: name, TypedConfig: xdsmsg.Any(wrapperspb.String(value))}
	return p
}

// unknown is a plugin that this client does not have.
func unknown(name, typeURL string, optional bool) *routepb.ClusterSpecifierPlugin {
	p := plugin(name, "", optional)
	p.Extension.TypedConfig = &anypb.Any{TypeUrl: "type.googleapis.com/" + typeURL}
	return p
}

// pluginRoute is a route with a plugin of the RouteConfiguration.
func pluginRoute(prefix, name string) *routepb.Route {
	return xdsmsg.Route(xdsmsg.Prefix(prefix), &routepb.RouteAction{
		ClusterSpecifier: &routepb.RouteAction_ClusterSpecifierPlugin{ClusterSpecifierPlugin: name}})
}

func inlineRoute(prefix string, p *routepb.ClusterSpecifierPlugin) *routepb.Route {
	return xdsmsg.Route(xdsmsg.Prefix(prefix), &routepb.RouteAction{
		ClusterSpecifier: &routepb.RouteAction_InlineClusterSpecifierPlugin{InlineClusterSpecifierPlugin: p}})
}

func withPlugins(plugins []*routepb.ClusterSpecifierPlugin, routes ...*routepb.Route) *routepb.RouteConfiguration {
	config := routeConfig(routes...)
	config.ClusterSpecifierPlugins = plugins
	return config
}

// The settings of routes are kept from version to version, but what a plugin makes of them is not.
func TestPluginsOverVersions(t *testing.T) {
	t.Parallel()
	routes := []*routepb.Route{pluginRoute("/a", "p"), inlineRoute("/b", plugin("i", "z", false))}
	all := []*routepb.RouteConfiguration{
		withPlugins([]*routepb.ClusterSpecifierPlugin{plugin("p", "x", false)}, routes...),
		withPlugins([]*routepb.ClusterSpecifierPlugin{plugin("p", "x", false)}, append(routes, xdsmsg.PrefixRoute("/", "last"))...),
		withPlugins([]*routepb.ClusterSpecifierPlugin{plugin("p", "y", false)}, routes...),
		withPlugins([]*routepb.ClusterSpecifierPlugin{unknown("p", "x.Y", true)}, routes...),
	}
	var v versions
	var decoded []*RouteConfiguration
	for _, pb := range all {
		xdstest.NoError(t, v.decode(RouteConfigurationType, pb))
		decoded = append(decoded, v.last.(*RouteConfiguration))
	}
	for i, want := range []int{2, 2, 2, 1} {
		xdstest.Equal(t, "plugins", want, len(decoded[i].Plugins))
	}
	xdstest.Equal(t, "the first config", "x", decoded[1].Plugins["cluster_specifier_plugin:p"].LBConfig)
	xdstest.Equal(t, "the second config", "y", decoded[2].Plugins["cluster_specifier_plugin:p"].LBConfig)
	xdstest.Equal(t, "routes without the plugin", 1, len(decoded[3].VirtualHosts[0].Routes))
}
