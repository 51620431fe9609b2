package xdsresource

import (
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
)

// Plugin reads the config of a cluster specifier plugin. It returns the load-balancing policy that chooses a cluster for
// each RPC, and the policy's config as JSON, which that has accepted.
type Plugin func(*anypb.Any) (policy, config string, err error)

// plugins has the Plugin of each message.
var plugins = make(map[string]Plugin)

// RegisterPlugin makes the decoder use a Plugin for configs of the named message. It is called by init functions only.
func RegisterPlugin(message string, p Plugin) { plugins[message] = p }

// importOf has the package that registers the Plugin of a message.
var importOf = map[string]string{"grpc.lookup.v1.RouteLookupClusterSpecifier": "github.com/dynxds/dynxds/balancer/rls"}

// PluginName returns what a cluster of a route is called in cluster_specifier_plugins. It reports false if it is an
// ordinary cluster.
func PluginName(cluster string) (name string, ok bool) {
	return strings.CutPrefix(cluster, xdsname.PluginPrefix)
}

// inlineName returns the name of the cluster of an inline plugin.
func inlineName(pb *routepb.ClusterSpecifierPlugin) string {
	return xdsname.PluginPrefix + pb.GetExtension().GetName() + "#" + strconv.FormatUint(xxhash.Sum64(marshal(pb)), 16)
}

// clusterSpecifierPlugins decodes the plugins by name. One that is optional and of an unknown type is nil.
func (d *routeDecoder) clusterSpecifierPlugins(at *faults.Path, pbs []*routepb.ClusterSpecifierPlugin) map[string]*Cluster {
	known := make(map[string]*Cluster, len(pbs))
	for i, pb := range pbs {
		at, name := at.Item("cluster_specifier_plugins", i), pb.GetExtension().GetName()
		if _, taken := known[name]; taken {
			d.fault(at, "there is a plugin %s before", faults.Quote(name))
			continue
		}
		known[name] = nil
		switch message := typeurl.Name(pb.GetExtension().GetTypedConfig().GetTypeUrl()); {
		case plugins[message] != nil:
			known[name] = d.plugin(at, xdsname.PluginPrefix+name, pb)
		case !pb.GetIsOptional():
			d.fault(at, "plugin %s: this client has no plugin for type %s, and is_optional is not set%s",
				faults.Quote(name), faults.Quote(pb.GetExtension().GetTypedConfig().GetTypeUrl()), toImport(message))
		}
	}
	return known
}

// toImport says what a program has to import for plugins of a message.
func toImport(message string) string {
	if path := importOf[message]; path != "" {
		return "; import " + path
	}
	return ""
}

// clusterName checks the name of a cluster that a resource refers to. Those of plugins are not names of Clusters.
func (v *validator) clusterName(at *faults.Path, name string) {
	if name == "" {
		v.fault(at, "must not be empty")
	} else if _, plugin := PluginName(name); plugin {
		v.fault(at, "must not begin with %q", xdsname.PluginPrefix)
	}
}

// plugin decodes a plugin of a known type, as the cluster of the given name.
func (d *routeDecoder) plugin(at *faults.Path, cluster string, pb *routepb.ClusterSpecifierPlugin) *Cluster {
	config := pb.GetExtension().GetTypedConfig()
	policy, text, err := plugins[typeurl.Name(config.GetTypeUrl())](config)
	if err != nil {
		d.fault(at.Field("extension").Field("typed_config"), "%v", err)
		return nil
	}
	return &Cluster{Name: cluster, Kind: ClusterPlugin, LBPolicy: policy, LBConfig: text}
}

// forwardToPlugin returns the Forward to the cluster of a plugin, nil if there is none: the route is ignored.
func (d *routeDecoder) forwardToPlugin(at *faults.Path, name string) *Forward {
	at = at.Field("cluster_specifier_plugin")
	d.tied = true
	c, known := d.plugins[name]
	switch {
	case !known:
		d.fault(at, "%s is not in cluster_specifier_plugins of the RouteConfiguration", faults.Quote(name))
		return nil
	case c == nil:
		return nil
	}
	return d.forwardVia(c)
}

// forwardToInlinePlugin is forwardToPlugin for a plugin of the route's own.
func (d *routeDecoder) forwardToInlinePlugin(at *faults.Path, pb *routepb.ClusterSpecifierPlugin) *Forward {
	at = at.Field("inline_cluster_specifier_plugin")
	d.tied = true
	if plugins[typeurl.Name(pb.GetExtension().GetTypedConfig().GetTypeUrl())] == nil {
		return nil
	}
	name := inlineName(pb)
	c := d.used[name]
	if c == nil {
		if c = d.plugin(at, name, pb); c == nil {
			return nil
		}
	}
	return d.forwardVia(c)
}

func (d *routeDecoder) forwardVia(c *Cluster) *Forward {
	if d.used == nil {
		d.used = make(map[string]*Cluster)
	}
	d.used[c.Name] = c
	return d.forwardToOne(c.Name)
}

// LeftOut reports whether a virtual host is decoded without a valid route, as gRFC A28
// requires: its cluster_specifier is not set or not supported.
func (rc *RouteConfiguration) LeftOut(pb *routepb.Route) bool {
	action, ok := pb.GetAction().(*routepb.Route_Route)
	if !ok {
		return false
	}
	switch specifier := action.Route.GetClusterSpecifier().(type) {
	case *routepb.RouteAction_Cluster, *routepb.RouteAction_ClusterHeader, *routepb.RouteAction_WeightedClusters:
		return false
	case *routepb.RouteAction_ClusterSpecifierPlugin:
		return rc.Plugins[xdsname.PluginPrefix+specifier.ClusterSpecifierPlugin] == nil
	case *routepb.RouteAction_InlineClusterSpecifierPlugin:
		return rc.Plugins[inlineName(specifier.InlineClusterSpecifierPlugin)] == nil
	default:
		return true
	}
}
