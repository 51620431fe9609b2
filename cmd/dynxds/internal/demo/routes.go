package demo

import (
	"context"
	"strconv"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/testutils"
)

const (
	serviceName = "echo.example.com"
	routesName  = "echo-routes"

	stable, canary, proxy             = "stable", "canary", "proxy"
	stable1, stable2, canary1, proxy1 = "stable-1", "stable-2", "canary-1", "proxy-1"
)

// clusters are those of the demo, with the names of their backends.
var clusters = []struct {
	name     string
	backends []string
}{
	{stable, []string{stable1, stable2}},
	{canary, []string{canary1}},
	{proxy, []string{proxy1}},
}

// fixedResources are the resources that no step changes.
func (m *mesh) fixedResources() []proto.Message {
	all := []proto.Message{xdsmsg.DefaultListener(serviceName, routesName)}
	for _, c := range clusters {
		var addresses []string
		for _, b := range c.backends {
			addresses = append(addresses, m.backends[b].Addr())
		}
		all = append(all, xdsmsg.EDSCluster(c.name, ""), xdsmsg.SimpleEndpoints(c.name, addresses...))
	}
	return all
}

// routes is configuration n: the weights of the clusters stable and canary, and a method that
// goes to canary alone, or "".
func routes(n int, stableWeight, canaryWeight uint32, moved string) *routepb.RouteConfiguration {
	var list []*routepb.Route
	if moved != "" {
		list = append(list, xdsmsg.PathRoute(methodPath(moved), canary))
	}
	list = append(list, xdsmsg.WeightedRoute("/",
		xdsmsg.Weighted{Cluster: stable, Weight: stableWeight},
		xdsmsg.Weighted{Cluster: canary, Weight: canaryWeight}))
	return numbered(n, routesName, list...)
}

// numbered is a RouteConfiguration that marks the RPCs it routes with its number.
func numbered(n int, name string, routes ...*routepb.Route) *routepb.RouteConfiguration {
	for _, route := range routes {
		route.GetRoute().MaxStreamDuration = &routepb.RouteAction_MaxStreamDuration{
			MaxStreamDuration: durationpb.New(maxStreamDuration(n)),
		}
	}
	return xdsmsg.RouteConfig(name, serviceName, routes...)
}

// maxStreamDuration encodes configuration n. It is the middle of an hour, so that neither
// rounding on the wire nor an RPC's wait for a connection leaves that hour.
func maxStreamDuration(n int) time.Duration { return time.Duration(n)*time.Hour - 30*time.Minute }

// configurationOf is the inverse, of what is left of the duration when the RPC arrives.
func configurationOf(left time.Duration) int { return int(left/time.Hour) + 1 }

// configurationHeader is the response header with the configuration that routed the RPC.
const configurationHeader = "demo-configuration"

// stampConfiguration is the behaviour of every backend.
func stampConfiguration(ctx context.Context, rpc testutils.RPC) error {
	if rpc.Deadline.IsZero() {
		return nil
	}
	n := configurationOf(time.Until(rpc.Deadline))
	return grpc.SetHeader(ctx, metadata.Pairs(configurationHeader, strconv.Itoa(n)))
}

// answeredBy reads the backend and the configuration from a response's header, "" and 0 if
// they are unknown.
func answeredBy(header metadata.MD) (backend string, configuration int) {
	if v := header.Get(testutils.BackendIDHeader); len(v) > 0 {
		backend = v[0]
	}
	if v := header.Get(configurationHeader); len(v) > 0 {
		configuration, _ = strconv.Atoi(v[0])
	}
	return backend, configuration
}
