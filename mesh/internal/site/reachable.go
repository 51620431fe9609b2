package site

import (
	"maps"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/dynxds/dynxds/mesh/meshroute"
)

// reachable keeps the Listener, the routes, and the resources that the routes refer to.
func reachable(items []Item, listener, routes string) []Item {
	wanted := map[string]map[string]bool{
		meshroute.ListenerType:           {listener: true},
		meshroute.RouteConfigurationType: {routes: true},
		meshroute.ClusterType:            {},
		meshroute.EndpointsType:          {},
	}
	var kept []Item
	// Items are ordered so that references precede the resource.
	for _, item := range items {
		if !wanted[item.TypeURL][item.Name] {
			continue
		}
		kept = append(kept, item)
		if item.Resource != nil {
			typeURL, names := references(item.Resource.Any(), item.Name)
			maps.Copy(wanted[typeURL], names)
		}
	}
	return kept
}

// addClusters adds the clusters of routes, including mirrors.
func addClusters(clusters map[string]bool, routes *routepb.RouteConfiguration) {
	for _, host := range routes.GetVirtualHosts() {
		for _, route := range host.GetRoutes() {
			action := route.GetRoute()
			clusters[action.GetCluster()] = true
			for _, c := range action.GetWeightedClusters().GetClusters() {
				clusters[c.GetName()] = true
			}
			for _, m := range action.GetRequestMirrorPolicies() {
				clusters[m.GetCluster()] = true
			}
		}
	}
}
