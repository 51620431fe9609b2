package xdsmsg

import routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

// RouteConfig is a RouteConfiguration with one virtual host for one domain.
func RouteConfig(name, domain string, routes ...*routepb.Route) *routepb.RouteConfiguration {
	return RouteConfigOf(name, VirtualHost(domain, []string{domain}, routes...))
}

// RouteConfigOf is a RouteConfiguration of the given virtual hosts.
func RouteConfigOf(name string, hosts ...*routepb.VirtualHost) *routepb.RouteConfiguration {
	return &routepb.RouteConfiguration{Name: name, VirtualHosts: hosts}
}

// VirtualHost is a VirtualHost.
func VirtualHost(name string, domains []string, routes ...*routepb.Route) *routepb.VirtualHost {
	return &routepb.VirtualHost{Name: name, Domains: domains, Routes: routes}
}

// Route joins a match and an action, as in
//
//	xdsmsg.Route(xdsmsg.Prefix("/"), xdsmsg.ToCluster("blue"))
func Route(match *routepb.RouteMatch, action *routepb.RouteAction) *routepb.Route {
	return &routepb.Route{Match: match, Action: &routepb.Route_Route{Route: action}}
}

// PrefixRoute sends the RPCs whose path starts with prefix to cluster.
func PrefixRoute(prefix, cluster string) *routepb.Route {
	return Route(Prefix(prefix), ToCluster(cluster))
}

// PathRoute sends the RPCs of exactly this path, "/service/method", to cluster.
func PathRoute(path, cluster string) *routepb.Route {
	return Route(Path(path), ToCluster(cluster))
}

// WeightedRoute splits the RPCs whose path starts with prefix.
func WeightedRoute(prefix string, clusters ...Weighted) *routepb.Route {
	return Route(Prefix(prefix), ToClusters(clusters...))
}

// Prefix matches paths that start with prefix.
func Prefix(prefix string) *routepb.RouteMatch {
	return &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_Prefix{Prefix: prefix}}
}

// Path matches exactly one path.
func Path(path string) *routepb.RouteMatch {
	return &routepb.RouteMatch{PathSpecifier: &routepb.RouteMatch_Path{Path: path}}
}

// ToCluster forwards to one cluster.
func ToCluster(cluster string) *routepb.RouteAction {
	return &routepb.RouteAction{ClusterSpecifier: &routepb.RouteAction_Cluster{Cluster: cluster}}
}

// Weighted is one share of a split.
type Weighted struct {
	Cluster string
	Weight  uint32
}

// ToClusters forwards to clusters drawn by weight.
func ToClusters(clusters ...Weighted) *routepb.RouteAction {
	split := new(routepb.RouteAction)
	for _, c := range clusters {
		With(split, `weighted_clusters { clusters { name: %q weight { value: %d } } }`, c.Cluster, c.Weight)
	}
	return split
}
