package soak

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/dynxds/dynxds/mesh/meshtest/load"
)

const (
	// service is the target's endpoint, and the name of its Listener.
	service = "soak.example.com"
	// versionHeader is the response header with the version of the configuration that
	// routed the RPC.
	versionHeader = "soak-version"
	// maxPriorities bounds the priorities of a cluster.
	maxPriorities = 3
)

// The pools that names are drawn from. They are small so that names are removed and added
// again with other contents.
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
	// byPolicy says that policies make the routes.
	byPolicy bool
	// filters are the names of the HTTP filters, in order.
	filters []string
	// routes has, for each lane, the clusters of each method, by equal weights.
	routes   map[lane]map[string][]string
	clusters map[string]clusterSpec
	// handouts has the handout of each client that uses DPDS, by name, and dpds the
	// states of the DPDS resources.
	handouts map[string]handout
	dpds     map[string]dpdsState
}

// clusterSpec is a cluster and its endpoints.
type clusterSpec struct {
	// service is eds_cluster_config.service_name, empty for the cluster's name.
	service  string
	policy   clusterpb.Cluster_LbPolicy
	security security
	// placements are the endpoints of each lane.
	placements map[lane]placement
}

// placement is the endpoints of a cluster: priorities has the backends by
// number, sick those that are listed as unhealthy beside them.
type placement struct {
	priorities [][]int
	sick       []int
}

// endpoints is the name of the cluster's ClusterLoadAssignment.
func (s clusterSpec) endpoints(cluster string) string {
	return cmp.Or(s.service, cluster)
}

// backends are those that may get RPCs.
func (p placement) backends() []int { return slices.Concat(p.priorities...) }

// plain is the configuration that a run starts with. Its only cluster is named by the version.
func plain(version int) *config {
	only, name := clusterSpec{placements: map[lane]placement{}}, fmt.Sprint("plain-", version)
	c := &config{
		version: version, routeName: routeNames[0], routes: map[lane]map[string][]string{},
		clusters: map[string]clusterSpec{name: only},
		handouts: map[string]handout{}, dpds: map[string]dpdsState{},
	}
	for _, l := range allLanes {
		only.placements[l] = placement{priorities: [][]int{{0, 1, 2}}}
		c.routes[l] = map[string][]string{}
		for _, kind := range load.Kinds {
			c.routes[l][kind.Method] = []string{name}
		}
	}
	return c
}

// clone returns a copy, to be changed.
func (c *config) clone() *config {
	next := *c
	next.routes = maps.Clone(c.routes)
	next.clusters = maps.Clone(c.clusters)
	next.handouts = maps.Clone(c.handouts)
	next.dpds = maps.Clone(c.dpds)
	return &next
}

// String is for error messages.
func (c *config) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "version %d", c.version)
	for _, name := range slices.Sorted(maps.Keys(c.clusters)) {
		s := c.clusters[name]
		fmt.Fprintf(&b, ", %s (%v, security %d, endpoints %s)", name, s.policy, s.security, s.endpoints(name))
		for _, l := range allLanes {
			fmt.Fprintf(&b, " %s%v", l, s.placements[l].priorities)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.handouts)) {
		fmt.Fprintf(&b, ", %q gets %v", name, c.handouts[name])
	}
	return b.String()
}

// prune removes the clusters that no route leads to.
func (c *config) prune() {
	var used []string
	for _, l := range allLanes {
		used = append(used, c.used(l)...)
	}
	maps.DeleteFunc(c.clusters, func(name string, _ clusterSpec) bool { return !slices.Contains(used, name) })
}

// used are the clusters that the routes of a lane lead to, in order.
func (c *config) used(l lane) []string {
	used := slices.Concat(slices.Collect(maps.Values(c.routes[l]))...)
	slices.Sort(used)
	return slices.Compact(used)
}

// A draw makes the parts of configurations from a run's random numbers.
type draw struct {
	*rand.Rand
	// sure are the backends that have been up since the mesh settled.
	sure []int
	// clients are those of the mesh, at least one of which uses DPDS.
	clients []client
}

// cluster draws a cluster that has at least one backend that is up in every lane.
func (d draw) cluster(name string) clusterSpec {
	s := clusterSpec{policy: policies[d.IntN(len(policies))], security: d.security()}
	if suffix := edsSuffixes[d.IntN(len(edsSuffixes))]; suffix != "" {
		s.service = name + suffix
	}
	s.placements = d.placements()
	return s
}

func (d draw) placements() map[lane]placement {
	all := map[lane]placement{}
	for _, l := range allLanes {
		all[l] = d.placement()
	}
	return all
}

// placement draws endpoints, at least one of which is up.
func (d draw) placement() placement {
	all := d.Perm(backends)
	pinned := d.sure[d.IntN(len(d.sure))]
	all = slices.DeleteFunc(all, func(i int) bool { return i == pinned })
	n := d.IntN(len(all))
	chosen := append([]int{pinned}, all[:n]...)
	d.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	p := placement{priorities: d.split(chosen)}
	if len(all) > n && d.IntN(3) == 0 {
		p.sick = all[n : n+1]
	}
	return p
}

// split distributes the backends over priorities, none of which is empty.
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

// routes draws one or two clusters for each method in each lane, of those that the lane
// has.
func (d draw) routes(c *config, has func(lane) []string) {
	for _, l := range allLanes {
		names := has(l)
		drawn := map[string][]string{}
		for _, method := range slices.Sorted(maps.Keys(c.routes[l])) {
			d.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			drawn[method] = slices.Clone(names[:1+d.IntN(min(2, len(names)))])
		}
		c.routes[l] = drawn
	}
}

// pick draws an operation by weight.
func pick(d *rand.Rand, from []op) *op {
	total := 0
	for _, o := range from {
		total += o.weight
	}
	n := d.IntN(total)
	for i, o := range from {
		if n -= o.weight; n < 0 {
			return &from[i]
		}
	}
	panic("unreachable: the weights add up to the total")
}
