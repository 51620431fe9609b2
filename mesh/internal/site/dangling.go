package site

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatepb "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// dangling reports what the resources of the folder refer to and the folder does not have. Names of other authorities are not
// reported, as other control planes may have them.
func (l *loaded) dangling(authority string) []meshroute.Report {
	existing := make(map[string]map[string]bool)
	for _, typeURL := range l.types() {
		existing[typeURL] = make(map[string]bool)
		for _, name := range l.names(typeURL) {
			existing[typeURL][xdsname.Canonical(name)] = true
		}
	}
	var reports []meshroute.Report
	for _, r := range l.content.Resources {
		typeURL, names := references(r.Any, r.Name)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			local := !strings.HasPrefix(name, xdsname.Prefix) || authority != "" && strings.HasPrefix(name, xdsname.Prefix+authority+"/")
			if name == "" || !local || existing[typeURL][xdsname.Canonical(name)] {
				continue
			}
			text := fmt.Sprintf("%s %s: there is no %s %q", clientTypes[r.Any.GetTypeUrl()].Name, r.Name, clientTypes[typeURL].Name, name)
			if nearest := faults.Nearest(name, slices.Sorted(maps.Keys(existing[typeURL]))); nearest != "" {
				text += fmt.Sprintf("; did you mean %q?", nearest)
			}
			reports = append(reports, meshroute.Report{Severity: meshroute.Warning, Source: r.Source, Message: text})
		}
	}
	return reports
}

// references returns the resources, all of one type, to which a resource refers: none if it cannot be read, which is reported elsewhere.
func references(resource *anypb.Any, name string) (typeURL string, names map[string]bool) {
	m, err := resource.UnmarshalNew()
	if err != nil {
		return "", nil
	}
	names = make(map[string]bool)
	switch m := m.(type) {
	case *listenerpb.Listener:
		var manager hcmpb.HttpConnectionManager
		if packed := m.GetApiListener().GetApiListener(); !packed.MessageIs(&manager) || packed.UnmarshalTo(&manager) != nil {
			return "", nil
		}
		if inline := manager.GetRouteConfig(); inline != nil {
			addClusters(names, inline)
			return meshroute.ClusterType, names
		}
		names[manager.GetRds().GetRouteConfigName()] = true
		return meshroute.RouteConfigurationType, names
	case *routepb.RouteConfiguration:
		addClusters(names, m)
		return meshroute.ClusterType, names
	case *clusterpb.Cluster:
		var aggregate aggregatepb.ClusterConfig
		if packed := m.GetClusterType().GetTypedConfig(); packed.MessageIs(&aggregate) && packed.UnmarshalTo(&aggregate) == nil {
			for _, cluster := range aggregate.GetClusters() {
				names[cluster] = true
			}
			return meshroute.ClusterType, names
		}
		if m.GetType() == clusterpb.Cluster_EDS {
			names[cmp.Or(m.GetEdsClusterConfig().GetServiceName(), m.GetName(), name)] = true
		}
		return meshroute.EndpointsType, names
	}
	return "", nil
}
