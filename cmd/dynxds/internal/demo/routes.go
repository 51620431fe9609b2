package demo

import (
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/testutils/xdsmsg"
)

const (
	serviceName = "echo.example.com"
	routesName  = "echo-routes"

	stable = "stable"
	canary = "canary"
	proxy  = "proxy"
)

// Backends, by name.
const (
	stable1 = "stable-1"
	stable2 = "stable-2"
	canary1 = "canary-1"
	proxy1  = "proxy-1"
)

// cluster is a cluster and its backends.
type cluster struct {
	name     string
	backends []string
}

// clusters are those of the demo. They are a function's result so that nobody
// can change them.
func clusters() []cluster {
	return []cluster{
		{stable, []string{stable1, stable2}},
		{canary, []string{canary1}},
		{proxy, []string{proxy1}},
	}
}

// fixedResources are those that no step changes. addr maps a backend to its
// address.
func fixedResources(addr func(backend string) string) []proto.Message {
	all := []proto.Message{xdsmsg.DefaultListener(serviceName, routesName)}
	for _, c := range clusters() {
		var addrs []string
		for _, b := range c.backends {
			addrs = append(addrs, addr(b))
		}
		all = append(all, xdsmsg.EDSCluster(c.name, ""), xdsmsg.SimpleEndpoints(c.name, addrs...))
	}
	return all
}

// routing is the content of a RouteConfiguration.
type routing struct {
	// number is the configuration's, from 1 on.
	number int
	// stable and canary are the weights that RPCs are split by.
	stable, canary uint32
	// moved is a method that goes to the cluster canary alone, "" if none does.
	moved string
}

func (r routing) message() *routepb.RouteConfiguration {
	var routes []*routepb.Route
	if r.moved != "" {
		routes = append(routes, xdsmsg.PathRoute("/"+testgrpc.TestService_ServiceDesc.ServiceName+"/"+r.moved, canary))
	}
	routes = append(routes, xdsmsg.WeightedRoute("/",
		xdsmsg.Weighted{Cluster: stable, Weight: r.stable},
		xdsmsg.Weighted{Cluster: canary, Weight: r.canary}))
	return numbered(r.number, routesName, routes...)
}

// numbered is a RouteConfiguration whose number shows in the RPCs that it routes.
func numbered(number int, name string, routes ...*routepb.Route) *routepb.RouteConfiguration {
	for _, route := range routes {
		route.GetRoute().MaxStreamDuration = &routepb.RouteAction_MaxStreamDuration{
			MaxStreamDuration: durationpb.New(maxStreamDuration(number)),
		}
	}
	return xdsmsg.RouteConfig(name, serviceName, routes...)
}
