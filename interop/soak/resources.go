package soak

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	mutationpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// key names a resource.
type key struct{ typeURL, name string }

// naming is how the resources of a client are named: the authority of new-style names
// (xRFC TP1), or empty for old-style ones.
type naming string

func (n naming) name(typeURL, id string) string {
	if n == "" {
		return id
	}
	return xdsname.New(string(n), typeurl.Name(typeURL), id)
}

// endpoints is the name of a cluster's ClusterLoadAssignment.
func (n naming) endpoints(s clusterSpec, cluster string) string {
	return n.name(xdsmsg.EndpointType, s.endpoints(cluster))
}

// keys are the resources that clients with the routes of the lane need of this
// configuration, except those of DPDS.
func (c *config) keys(l lane) map[key]bool {
	n := l.names()
	all := map[key]bool{{xdsmsg.ListenerType, n.name(xdsmsg.ListenerType, service)}: true}
	if !c.inline {
		all[key{xdsmsg.RouteType, n.name(xdsmsg.RouteType, c.routeName)}] = true
	}
	for _, name := range c.used(l) {
		s := c.clusters[name]
		all[key{xdsmsg.ClusterType, n.name(xdsmsg.ClusterType, name)}] = true
		all[key{xdsmsg.EndpointType, n.endpoints(s, name)}] = true
	}
	return all
}

// allKeys are the resources that clients need of this configuration, except those of
// DPDS.
func (c *config) allKeys() map[key]bool {
	all := map[key]bool{}
	for _, l := range allLanes {
		maps.Copy(all, c.keys(l))
	}
	return all
}

// put stores the configuration. addr is the address of a backend.
func (c *config) put(tx *controlplane.Tx, addr func(backend int) string) {
	for _, n := range []naming{"", lanedNames} {
		for _, name := range slices.Sorted(maps.Keys(c.clusters)) {
			s := c.clusters[name]
			tx.Set(s.cluster(n, name))
		}
	}
	for _, l := range allLanes {
		tx.SetVariant(l.parameters(), c.variant(l, addr)...)
	}
	c.putDPDS(tx)
}

// variant returns the resources that each lane has of its own.
func (c *config) variant(l lane, addr func(int) string) []proto.Message {
	n := l.names()
	routes := c.routeConfig(l)
	messages := []proto.Message{c.listener(n, routes)}
	if !c.inline {
		messages = append(messages, routes)
	}
	for _, name := range slices.Sorted(maps.Keys(c.clusters)) {
		s := c.clusters[name]
		messages = append(messages, s.placements[l].assignment(n.endpoints(s, name), addr))
	}
	return messages
}

// cluster sets the name of the ClusterLoadAssignment where gRFC A47 requires it.
func (s clusterSpec) cluster(n naming, name string) *clusterpb.Cluster {
	service := s.service
	if n != "" {
		service = n.endpoints(s, name)
	}
	cluster := xdsmsg.EDSCluster(n.name(xdsmsg.ClusterType, name), service)
	cluster.LbPolicy, cluster.TransportSocket = s.policy, s.security.socket()
	return cluster
}

func (c *config) listener(n naming, routes *routepb.RouteConfiguration) *listenerpb.Listener {
	var filters []*hcmpb.HttpFilter
	for _, name := range c.filters {
		filters = append(filters, filter(name, c.version))
	}
	name := n.name(xdsmsg.ListenerType, service)
	if c.inline {
		return xdsmsg.InlineListener(name, routes, filters...)
	}
	return xdsmsg.DefaultListener(name, routes.Name, filters...)
}

// filter returns a filter that passes every RPC.
func filter(name string, version int) *hcmpb.HttpFilter {
	if name == "fault" {
		return xdsmsg.Filter(name, &faultpb.HTTPFault{})
	}
	return xdsmsg.Filter(name, xdsmsg.With(new(mutationpb.HeaderMutation),
		`mutations { request_mutations { append { `+setHeader+` } } }`, "x-"+name, strconv.Itoa(version)))
}

func (c *config) routeConfig(l lane) *routepb.RouteConfiguration {
	n := l.names()
	name := n.name(xdsmsg.RouteType, c.routeName)
	if c.byPolicy {
		return xdsmsg.RouteConfig(name, "*", c.byPolicies(l)...)
	}
	var table []*routepb.Route
	for _, method := range slices.Sorted(maps.Keys(c.routes[l])) {
		var split []xdsmsg.Weighted
		for _, name := range c.routes[l][method] {
			split = append(split, xdsmsg.Weighted{Cluster: n.name(xdsmsg.ClusterType, name), Weight: 1})
		}
		action := xdsmsg.ToClusters(split...)
		if len(split) == 1 {
			action = xdsmsg.ToCluster(split[0].Cluster)
		}
		if c.retry {
			action.RetryPolicy = retryPolicy()
		}
		table = append(table, xdsmsg.Route(xdsmsg.Path(method), action))
	}
	rc := xdsmsg.RouteConfig(name, "*", table...)
	xdsmsg.With(rc, `response_headers_to_add { `+setHeader+` }`, versionHeader, strconv.Itoa(c.version))
	if l != unlaned {
		xdsmsg.With(rc, `response_headers_to_add { `+setHeader+` }`, laneHeader, string(l))
	}
	return rc
}

func retryPolicy() *routepb.RetryPolicy {
	return xdsmsg.With(new(routepb.RetryPolicy), `retry_on: "unavailable" num_retries { value: 3 } retry_back_off { base_interval { nanos: 1000000 } }`)
}

// setHeader is a HeaderValueOption that overwrites.
const setHeader = `header { key: %q value: %q } append_action: OVERWRITE_IF_EXISTS_OR_ADD`

// assignment lists every backend of the cluster.
func (p placement) assignment(name string, addr func(int) string) *endpointpb.ClusterLoadAssignment {
	var localities []xdsmsg.Locality
	for priority, backends := range p.priorities {
		l := xdsmsg.Locality{Zone: fmt.Sprint("zone-", priority), Weight: 1, Priority: uint32(priority)}
		for _, b := range backends {
			l.Endpoints = append(l.Endpoints, xdsmsg.Endpoint{Addr: addr(b), Health: corepb.HealthStatus_HEALTHY})
		}
		if priority == 0 {
			for _, b := range p.sick {
				l.Endpoints = append(l.Endpoints, xdsmsg.Endpoint{Addr: addr(b), Health: corepb.HealthStatus_UNHEALTHY})
			}
		}
		localities = append(localities, l)
	}
	return xdsmsg.Endpoints(name, localities...)
}
