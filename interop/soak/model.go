package soak

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	rulespb "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerpb "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	mutationpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	hcmpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/testutils/xdsmsg"
)

const (
	// service is the target's endpoint, and the name of its Listener.
	service = "soak.example.com"
	// versionHeader is the response header by which a configuration says that
	// it routed the RPC.
	versionHeader = "soak-version"
	// maxPriorities bounds the priorities of a cluster.
	maxPriorities = 3
)

// The pools that names are drawn from. They are small so that a name comes and
// goes, and comes back with other contents.
var (
	clusterNames = []string{"amber", "blue", "coral", "denim", "ebony"}
	routeNames   = []string{"routes", "other-routes"}
	edsSuffixes  = []string{"", "-a", "-b"}
	filterNames  = []string{"mutation", "fault", "second-mutation"}
	policies     = []clusterpb.Cluster_LbPolicy{clusterpb.Cluster_ROUND_ROBIN, clusterpb.Cluster_LEAST_REQUEST, clusterpb.Cluster_RING_HASH, clusterpb.Cluster_RANDOM}
)

// config is one configuration of the mesh. A published one is never changed.
type config struct {
	// version numbers the configurations of a run; it is in the routes.
	version int
	// inline says that the Listener carries the routes; else routeName does.
	inline    bool
	routeName string
	retry     bool
	// filters are the names of the HTTP filters, in order.
	filters []string
	// routes has the clusters of each method, by equal weights.
	routes   map[string][]string
	clusters map[string]clusterSpec
}

// clusterSpec is a cluster and its endpoints.
type clusterSpec struct {
	// service is eds_cluster_config.service_name, empty for the cluster's name.
	service string
	policy  clusterpb.Cluster_LbPolicy
	// priorities has the backends by number, sick those that are listed as
	// unhealthy beside them.
	priorities [][]int
	sick       []int
}

// endpoints is the name of the cluster's ClusterLoadAssignment.
func (s clusterSpec) endpoints(cluster string) string {
	if s.service != "" {
		return s.service
	}
	return cluster
}

// backends are those that may be sent RPCs.
func (s clusterSpec) backends() []int { return slices.Concat(s.priorities...) }

// plain is the configuration that a run begins with and comes back to where
// memory is measured.
func plain(version int, methods []string) *config {
	c := &config{
		version: version, routeName: routeNames[0], routes: map[string][]string{},
		clusters: map[string]clusterSpec{clusterNames[0]: {priorities: [][]int{{0, 1, 2}}}},
	}
	for _, m := range methods {
		c.routes[m] = clusterNames[:1]
	}
	return c
}

// clone returns a copy, to be changed.
func (c *config) clone() *config {
	next := *c
	next.routes = maps.Clone(c.routes)
	next.clusters = maps.Clone(c.clusters)
	return &next
}

// String is for the report of a fault.
func (c *config) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "version %d", c.version)
	for _, name := range slices.Sorted(maps.Keys(c.clusters)) {
		s := c.clusters[name]
		fmt.Fprintf(&b, ", %s (%v, endpoints %s) %v", name, s.policy, s.endpoints(name), s.priorities)
	}
	return b.String()
}

// prune takes out the clusters that no route leads to.
func (c *config) prune() {
	used := map[string]bool{}
	for _, clusters := range c.routes {
		for _, name := range clusters {
			used[name] = true
		}
	}
	maps.DeleteFunc(c.clusters, func(name string, _ clusterSpec) bool { return !used[name] })
}

// A draw makes the parts of configurations from a run's random numbers.
type draw struct {
	*rand.Rand
	// count is how many backends there are, sure those that are up for certain.
	count int
	sure  []int
}

// cluster draws a cluster that has at least one backend that is up.
func (d draw) cluster(name string) clusterSpec {
	s := clusterSpec{policy: policies[d.IntN(len(policies))]}
	if suffix := edsSuffixes[d.IntN(len(edsSuffixes))]; suffix != "" {
		s.service = name + suffix
	}
	all := d.Perm(d.count)
	pinned := d.sure[d.IntN(len(d.sure))]
	all = slices.DeleteFunc(all, func(i int) bool { return i == pinned })
	n := d.IntN(len(all))
	chosen := append([]int{pinned}, all[:n]...)
	d.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	s.priorities = d.split(chosen)
	if len(all) > n && d.IntN(3) == 0 {
		s.sick = all[n : n+1]
	}
	return s
}

// split deals the backends to priorities, none of which is empty.
func (d draw) split(backends []int) [][]int {
	groups := make([][]int, 1+d.IntN(min(maxPriorities, len(backends))))
	for i, b := range backends {
		g := i
		if i >= len(groups) {
			g = d.IntN(len(groups))
		}
		groups[g] = append(groups[g], b)
	}
	return groups
}

// routes draws one or two of the clusters for each method.
func (d draw) routes(c *config) {
	names := slices.Sorted(maps.Keys(c.clusters))
	for _, method := range slices.Sorted(maps.Keys(c.routes)) {
		d.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		c.routes[method] = slices.Clone(names[:1+d.IntN(min(2, len(names)))])
	}
}

// key names a resource.
type key struct{ typeURL, name string }

// keys are the resources that a client needs of this configuration.
func (c *config) keys() map[key]bool {
	all := map[key]bool{{xdsmsg.ListenerType, service}: true}
	if !c.inline {
		all[key{xdsmsg.RouteType, c.routeName}] = true
	}
	for name, s := range c.clusters {
		all[key{xdsmsg.ClusterType, name}] = true
		all[key{xdsmsg.EndpointType, s.endpoints(name)}] = true
	}
	return all
}

// resources are the configuration as a control plane has it. addr is the
// address of a backend.
func (c *config) resources(addr func(backend int) string) []proto.Message {
	routes := c.routeConfig()
	messages := []proto.Message{c.listener(routes)}
	if !c.inline {
		messages = append(messages, routes)
	}
	for _, name := range slices.Sorted(maps.Keys(c.clusters)) {
		s := c.clusters[name]
		cluster := xdsmsg.EDSCluster(name, s.service)
		cluster.LbPolicy = s.policy
		messages = append(messages, cluster, s.assignment(s.endpoints(name), addr))
	}
	return messages
}

func (c *config) listener(routes *routepb.RouteConfiguration) *listenerpb.Listener {
	var filters []*hcmpb.HttpFilter
	for _, name := range c.filters {
		filters = append(filters, filter(name, c.version))
	}
	if c.inline {
		return xdsmsg.InlineListener(service, routes, filters...)
	}
	return xdsmsg.DefaultListener(service, c.routeName, filters...)
}

// filter is a filter that lets every RPC through.
func filter(name string, version int) *hcmpb.HttpFilter {
	if name == "fault" {
		return xdsmsg.Filter(name, &faultpb.HTTPFault{})
	}
	edit := &rulespb.HeaderMutation{Action: &rulespb.HeaderMutation_Append{Append: setHeader("x-"+name, version)}}
	return xdsmsg.Filter(name, &mutationpb.HeaderMutation{
		Mutations: &mutationpb.Mutations{RequestMutations: []*rulespb.HeaderMutation{edit}},
	})
}

func (c *config) routeConfig() *routepb.RouteConfiguration {
	var table []*routepb.Route
	for _, method := range slices.Sorted(maps.Keys(c.routes)) {
		var split []xdsmsg.Weighted
		for _, name := range c.routes[method] {
			split = append(split, xdsmsg.Weighted{Cluster: name, Weight: 1})
		}
		action := xdsmsg.ToClusters(split...)
		if len(split) == 1 {
			action = xdsmsg.ToCluster(split[0].Cluster)
		}
		if c.retry {
			action.RetryPolicy = &routepb.RetryPolicy{RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(3),
				RetryBackOff: &routepb.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(time.Millisecond)}}
		}
		table = append(table, xdsmsg.Route(xdsmsg.Path(method), action))
	}
	rc := xdsmsg.RouteConfig(c.routeName, "*", table...)
	rc.ResponseHeadersToAdd = []*corepb.HeaderValueOption{setHeader(versionHeader, c.version)}
	return rc
}

func setHeader(key string, version int) *corepb.HeaderValueOption {
	return &corepb.HeaderValueOption{
		Header:       &corepb.HeaderValue{Key: key, Value: strconv.Itoa(version)},
		AppendAction: corepb.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// assignment lists every backend of the cluster.
func (s clusterSpec) assignment(name string, addr func(int) string) *endpointpb.ClusterLoadAssignment {
	var localities []xdsmsg.Locality
	for priority, backends := range s.priorities {
		l := xdsmsg.Locality{Zone: fmt.Sprint("zone-", priority), Weight: 1, Priority: uint32(priority)}
		for _, b := range backends {
			l.Endpoints = append(l.Endpoints, xdsmsg.Endpoint{Addr: addr(b), Health: corepb.HealthStatus_HEALTHY})
		}
		if priority == 0 {
			for _, b := range s.sick {
				l.Endpoints = append(l.Endpoints, xdsmsg.Endpoint{Addr: addr(b), Health: corepb.HealthStatus_UNHEALTHY})
			}
		}
		localities = append(localities, l)
	}
	return xdsmsg.Endpoints(name, localities...)
}
