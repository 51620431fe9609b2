//lint:file-ignore SA1019 Control planes still send the deprecated fields.

package xdsresource

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

// nestedWRR is round robin, at the given depth of policies.
func nestedWRR(depth int) string {
	if depth == 1 {
		return `[RoundRobin]{}`
	}
	return wrrLocality(nestedWRR(depth - 1))
}

// passedOver is the note about a skipped entry of load_balancing_policy.
func passedOver(i int, typeURL string) xdsclient.Ignored {
	return xdsclient.Ignored{
		Path:   fmt.Sprintf("load_balancing_policy.policies[%d].typed_extension_config.typed_config", i),
		Reason: fmt.Sprintf("this client has no load balancing policy of type %q", typeURL),
		Places: 1,
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	const rr = `[RoundRobin]{}`
	lb := func(messages ...string) string { return `load_balancing_policy{` + policies(messages...) + `}` }
	across := Cluster{Name: "blue", EDSServiceName: "blue", LBPolicy: "round_robin", AcrossLocalities: true}
	passing := across
	passing.Ignored = []xdsclient.Ignored{passedOver(0, ""), passedOver(1, unknownURL),
		passedOver(2, "type.googleapis.com/envoy.extensions.load_balancing_policies.cluster_provided.v3.ClusterProvided")}
	for _, tc := range []struct {
		given, fields string
		want          Cluster
	}{
		{"no service name", ``, Cluster{Name: "blue", EDSServiceName: "blue", LBPolicy: "round_robin"}},
		{"a service name, from self", `eds_cluster_config{eds_config{self{}} service_name:"svc"}`,
			Cluster{Name: "blue", EDSServiceName: "svc", LBPolicy: "round_robin"}},
		{"an xdstp name", `name:"xdstp://a/envoy.config.cluster.v3.Cluster/b" eds_cluster_config{service_name:"svc"}`,
			Cluster{Name: "xdstp://a/envoy.config.cluster.v3.Cluster/b", EDSServiceName: "svc", LBPolicy: "round_robin"}},
		{"load reports to self", `lrs_server{self{}}`,
			Cluster{Name: "blue", EDSServiceName: "blue", LBPolicy: "round_robin", Load: &LoadReporting{}}},
		{"load_balancing_policy round robin", lb(rr), across},
		{"load_balancing_policy round robin in WrrLocality", lb(wrrLocality(rr)),
			Cluster{Name: "blue", EDSServiceName: "blue", LBPolicy: "round_robin"}},
		{"load_balancing_policy behind unknown ones", lb("", unknownMessage, `[ClusterProvided]{}`, rr), passing},
		{"load_balancing_policy instead of lb_policy (gRFC A52)", lb(rr) + `lb_policy:CLUSTER_PROVIDED`, across},
		{"16 policies within each other (gRFC A52)", lb(nestedWRR(16)),
			Cluster{Name: "blue", EDSServiceName: "blue", LBPolicy: "round_robin"}},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			tc.want.MaxRequests, tc.want.Sessions = DefaultMaxRequests, DefaultSessions
			xdstest.Equal(t, "Cluster", &tc.want, mustDecode[Cluster](t, ClusterType, blue(t, tc.fields)))
		})
	}
}

func TestClusterFaults(t *testing.T) {
	t.Parallel()
	lb := func(messages ...string) string { return `load_balancing_policy{` + policies(messages...) + `}` }
	const lbPath, typedConfig = "load_balancing_policy", ".policies[0].typed_extension_config.typed_config"
	const none, knows, types = lbPath + ".policies: no known load balancing policy among ", "; " + knownPolicies, "; " + knownTypes
	const lbPolicy = "lb_policy: unknown load balancing policy CLUSTER_PROVIDED; " +
		"this client knows ROUND_ROBIN, LEAST_REQUEST, RING_HASH, MAGLEV and RANDOM"
	checkTextFaults(t, ClusterType, "", blue, []textCase{
		{"type ORIGINAL_DST", `type:ORIGINAL_DST`, "type: unknown cluster type ORIGINAL_DST" + types},
		{"a type from the future", `type:77`, "type: unknown cluster type 77" + types},
		{"a custom type", `cluster_type{name:"envoy.clusters.x" typed_config{` + unknownMessage + `}}`,
			`cluster_type: unknown cluster type "envoy.clusters.x" ("` + unknownURL + `")` + types},
		{"EDS from a file", `eds_cluster_config{eds_config{path:"/etc/x"}}`,
			"eds_cluster_config.eds_config: must be ads or self, is path"},
		{"an xdstp name and no service name (gRFC A47)", `name:"xdstp://a/b/c"`,
			"eds_cluster_config.service_name: must not be empty in a cluster whose name starts with xdstp:"},
		{"another lb_policy", `lb_policy:CLUSTER_PROVIDED`, lbPolicy},
		{"an empty load_balancing_policy", lb(), none + "[]" + knows},
		{"only unknown policies", lb(unknownMessage, ""), none + `["` + unknownURL + `" ""]` + knows},
		{"many unknown policies", lb("", "", "", "", "", "", ""), none + `["" "" "" "" "" …]` + knows},
		{"a known policy at fault before a good one (gRFC A52)", lb(wrrLocality(unknownMessage), `[RoundRobin]{}`),
			lbPath + typedConfig + `.endpoint_picking_policy.policies: no known load balancing policy among ["` + unknownURL + `"]` + knows},
		{"17 policies within each other (gRFC A52)", lb(nestedWRR(17)),
			lbPath + strings.Repeat(typedConfig+".endpoint_picking_policy", 16) + ": has more than 16 policies within each other"},
		{"load reports to elsewhere", `lrs_server{ads{}}`, "lrs_server: must be self, is ads"},
	})
	bare := func(t testing.TB, fields string) *clusterpb.Cluster { return withText(t, &clusterpb.Cluster{}, fields) }
	checkTextFaults(t, ClusterType, "", bare, []textCase{
		{"no type", `name:"blue"`, "type: the cluster type is not set" + types},
		{"no EDS config", `name:"blue" type:EDS`, "eds_cluster_config.eds_config: must be ads or self, is not set"},
		{"several faults", `lb_policy:CLUSTER_PROVIDED lrs_server{path:"/etc/x"}`,
			"name: must not be empty; type: the cluster type is not set" + types + "; " + lbPolicy + "; lrs_server: must be self, is path"},
	})
}

func TestClusterWithUnreadablePolicy(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"RoundRobin", "WrrLocality"} {
		c := picking(t, `type_url:"type.googleapis.com/`+anyTypes[name]+`" value:"\xff"`)
		faults := decodeFaults(t, ClusterType, c)
		want := "cannot be read as " + anyTypes[name]
		if len(faults) != 1 || !strings.HasPrefix(faults[0].Problem, want) {
			t.Errorf("faults = %v, want one that starts with %q", faults, want)
		}
	}
}

func inlineCluster(kind clusterpb.Cluster_DiscoveryType, load *endpointpb.ClusterLoadAssignment, edits ...func(*clusterpb.Cluster)) *clusterpb.Cluster {
	c := &clusterpb.Cluster{Name: "blue", ClusterDiscoveryType: &clusterpb.Cluster_Type{Type: kind}, LoadAssignment: load}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

// bare is a locality without name and weight, as in files for Envoy.
func bare(priority uint32, endpoints ...*endpointpb.LbEndpoint) *endpointpb.LocalityLbEndpoints {
	return &endpointpb.LocalityLbEndpoints{Priority: priority, LbEndpoints: endpoints}
}

func TestClusterWithInlineEndpoints(t *testing.T) {
	t.Parallel()
	id := func(zone string) LocalityID { return LocalityID{Region: "r", Zone: zone, SubZone: "s"} }
	one := func(address string) []Endpoint { return []Endpoint{{Address: address, Weight: 1}} }
	ill := func(h string) *endpointpb.LbEndpoint {
		e := host(h)
		e.HealthStatus = corepb.HealthStatus_UNHEALTHY
		return e
	}
	dropping := assignment(bare(0, host("10.0.0.1")))
	dropping.Policy = &endpointpb.ClusterLoadAssignment_Policy{DropOverloads: []*endpointpb.ClusterLoadAssignment_Policy_DropOverload{
		{Category: "spare", DropPercentage: &typepb.FractionalPercent{Numerator: 25}},
	}}
	family := func(f clusterpb.Cluster_DnsLookupFamily) func(*clusterpb.Cluster) {
		return func(c *clusterpb.Cluster) { c.DnsLookupFamily = f }
	}
	hostnamed := host("name.test")
	hostnamed.GetEndpoint().Hostname = "other.test"
	hostnamed.LoadBalancingWeight = nil
	for _, tc := range []struct {
		given    string
		resource *clusterpb.Cluster
		want     Cluster
	}{
		{
			"STATIC, as files for Envoy have it: localities weigh as much as their endpoints",
			inlineCluster(clusterpb.Cluster_STATIC, assignment(bare(0, host("10.0.0.1"), withWeight(host("::1"), 4)), bare(1, host("10.0.0.2")))),
			Cluster{Kind: ClusterStatic, Inline: &Endpoints{Name: "blue", Localities: []Locality{
				{Weight: 5, Endpoints: []Endpoint{{Address: "10.0.0.1:80", Weight: 1}, {Address: "[::1]:80", Weight: 4}}},
				{Priority: 1, Weight: 1, Endpoints: one("10.0.0.2:80")},
			}}},
		}, {
			"STATIC: endpoints that get no RPCs have no weight; a locality has at least 1",
			inlineCluster(clusterpb.Cluster_STATIC, assignment(bare(0, host("10.0.0.1"), ill("10.0.0.2"), ill("10.0.0.3")), bare(1, ill("10.0.0.4")))),
			Cluster{Kind: ClusterStatic, Inline: &Endpoints{Name: "blue", Localities: []Locality{
				{Weight: 1, Endpoints: []Endpoint{
					{Address: "10.0.0.1:80", Weight: 1}, {Address: "10.0.0.2:80", Weight: 1, Health: HealthUnhealthy}, {Address: "10.0.0.3:80", Weight: 1, Health: HealthUnhealthy},
				}},
				{Priority: 1, Weight: 1, Endpoints: []Endpoint{{Address: "10.0.0.4:80", Weight: 1, Health: HealthUnhealthy}}},
			}}},
		}, {
			"STATIC with weights of localities: those without are not used (gRFC A27)",
			inlineCluster(clusterpb.Cluster_STATIC, assignment(locality("a", 0, 3, host("10.0.0.1")), bare(0, host("10.0.0.2")))),
			Cluster{Kind: ClusterStatic, Inline: &Endpoints{Name: "blue", Localities: []Locality{
				{ID: id("a"), Weight: 3, Endpoints: one("10.0.0.1:80")},
			}}, Ignored: []xdsclient.Ignored{{
				Path: "load_assignment.endpoints[1].load_balancing_weight", Reason: "is not set, so the locality is not used (gRFC A27)",
				Severity: xdsclient.SeverityWarning, Places: 1,
			}}},
		}, {
			"STATIC with drops", inlineCluster(clusterpb.Cluster_STATIC, dropping),
			Cluster{Kind: ClusterStatic, Inline: &Endpoints{
				Name: "blue", Drops: []Drop{{"spare", Million / 4}}, Localities: []Locality{{Weight: 1, Endpoints: one("10.0.0.1:80")}},
			}},
		}, {
			"STATIC without load_assignment, as Istio's BlackHoleCluster", inlineCluster(clusterpb.Cluster_STATIC, nil),
			Cluster{Kind: ClusterStatic, Inline: &Endpoints{Name: "blue"}},
		}, {
			"STATIC without endpoints", inlineCluster(clusterpb.Cluster_STATIC, assignment()),
			Cluster{Kind: ClusterStatic, Inline: &Endpoints{Name: "blue", Localities: []Locality{}}},
		}, {
			"STRICT_DNS, as files for Envoy have it",
			inlineCluster(clusterpb.Cluster_STRICT_DNS, assignment(bare(0, host("a.test"), withWeight(host("b.test"), 4)))),
			Cluster{Kind: ClusterStrictDNS, Resolution: Resolution{RefreshRate: 5 * time.Second}, Inline: &Endpoints{Name: "blue", Localities: []Locality{
				{Endpoints: []Endpoint{{Address: "a.test:80", Weight: 1}, {Address: "b.test:80", Weight: 4}}},
			}}},
		}, {
			"STRICT_DNS with everything",
			inlineCluster(clusterpb.Cluster_STRICT_DNS, assignment(locality("a", 0, 3, host("10.0.0.1"))), family(clusterpb.Cluster_V6_ONLY),
				func(c *clusterpb.Cluster) { c.DnsRefreshRate = durationpb.New(time.Minute) }),
			Cluster{Kind: ClusterStrictDNS, Resolution: Resolution{RefreshRate: time.Minute, AddressFamily: FamilyV6}, Inline: &Endpoints{Name: "blue", Localities: []Locality{
				{ID: id("a"), Weight: 3, Endpoints: one("10.0.0.1:80")},
			}}},
		}, {
			"LOGICAL_DNS: the locality is nameless (gRFC A37), the hostname is the name with its port (gRFC A81)",
			inlineCluster(clusterpb.Cluster_LOGICAL_DNS, assignment(locality("a", 7, 0, hostnamed)), family(clusterpb.Cluster_V4_ONLY)),
			Cluster{Kind: ClusterLogicalDNS, Resolution: Resolution{AddressFamily: FamilyV4}, Inline: &Endpoints{Name: "blue", Localities: []Locality{
				{Weight: 1, Endpoints: []Endpoint{{Address: "name.test:80", Hostname: "name.test:80", Weight: 1}}},
			}}},
		}, {
			"LOGICAL_DNS that prefers IPv4",
			inlineCluster(clusterpb.Cluster_LOGICAL_DNS, assignment(bare(0, host("name.test"))), family(clusterpb.Cluster_V4_PREFERRED)),
			Cluster{Kind: ClusterLogicalDNS, Resolution: Resolution{AddressFamily: FamilyV4Preferred}, Inline: &Endpoints{Name: "blue", Localities: []Locality{
				{Weight: 1, Endpoints: []Endpoint{{Address: "name.test:80", Hostname: "name.test:80", Weight: 1}}},
			}}},
		},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			tc.want.Name, tc.want.LBPolicy, tc.want.MaxRequests, tc.want.Sessions = "blue", "round_robin", DefaultMaxRequests, DefaultSessions
			xdstest.Equal(t, "Cluster", &tc.want, mustDecode[Cluster](t, ClusterType, tc.resource))
		})
	}
}

// gRFC A75, "Aggregate Cluster Changes": whatever policy the aggregate cluster
// has is ignored.
func TestAggregateCluster(t *testing.T) {
	t.Parallel()
	c := xdsmsg.AggregateCluster("blue", "a", "b", "a")
	c.LbPolicy = clusterpb.Cluster_CLUSTER_PROVIDED
	c.LrsServer = xdsmsg.ADS()
	want := &Cluster{Name: "blue", Kind: ClusterAggregate, Underlying: []string{"a", "b", "a"}}
	xdstest.Equal(t, "Cluster", want, mustDecode[Cluster](t, ClusterType, c))
}

// gRFC A37, "Validation", and what Envoy demands of the types that gRPC does not
// have.
func TestFaultsOfInlineEndpointsAndAggregates(t *testing.T) {
	t.Parallel()
	// inline is a cluster with the localities, and in a locality without a name.
	inline := func(kind string, localities ...string) string {
		return `type:` + kind + ` load_assignment{` + strings.Join(localities, " ") + `}`
	}
	in := func(priority int, endpoints ...string) string {
		return fmt.Sprintf(`endpoints{priority:%d %s}`, priority, strings.Join(endpoints, " "))
	}
	one := func(host string) string {
		return `lb_endpoints{endpoint{address{socket_address{address:"` + host + `" port_value:80}}}}`
	}
	const (
		lbEndpoints = "load_assignment.endpoints[0].lb_endpoints"
		oneEntry    = ": must have exactly one entry in a cluster of type LOGICAL_DNS, has "
	)
	cluster := func(t testing.TB, fields string) *clusterpb.Cluster {
		return withText(t, &clusterpb.Cluster{Name: "blue"}, fields)
	}
	checkTextFaults(t, ClusterType, lbEndpoints+"[0].endpoint.address.socket_address", cluster, []textCase{
		{"STRICT_DNS without load_assignment", `type:STRICT_DNS`, "load_assignment: must be set in a cluster of type STRICT_DNS"},
		{"LOGICAL_DNS without load_assignment", `type:LOGICAL_DNS`, "load_assignment: must be set in a cluster of type LOGICAL_DNS"},
		{"STATIC with a host name", inline("STATIC", in(0, one("a.test"))),
			`@.address: "a.test" is not an IP address; clusters of type STRICT_DNS and LOGICAL_DNS take host names`},
		{"a custom resolver", inline("STATIC", in(0, `lb_endpoints{endpoint{address{
			socket_address{address:"10.0.0.1" port_value:80 resolver_name:"special"}}}}`)),
			`@.resolver_name: must be empty, is "special": this client resolves names with DNS`},
		{"the same place twice", inline("STATIC", in(0, one("10.0.0.1")), in(0, one("10.0.0.2"))),
			"load_assignment.endpoints[1].locality: is the same as that of endpoints[0], in the same priority 0"},
		{"a gap in the priorities", inline("STRICT_DNS", in(0, one("a")), in(2, one("b"))),
			"load_assignment.endpoints: no locality has priority 1 although one has priority 2; priorities must have no gaps"},
		{"too much weight in one locality, and so in the priority", inline("STATIC", in(0, `lb_endpoints{
			load_balancing_weight{value:4294967295} endpoint{address{socket_address{address:"10.0.0.1" port_value:80}}}}`, one("10.0.0.2"))),
			lbEndpoints + ": the endpoints have a weight of 4294967296 together, more than 4294967295"},
		{"a drop without category", inline("LOGICAL_DNS", in(0, one("a")), `policy{drop_overloads{}}`),
			"load_assignment.policy.drop_overloads[0].category: must not be empty"},
		{"LOGICAL_DNS without locality", inline("LOGICAL_DNS"), "load_assignment.endpoints" + oneEntry + "0"},
		{"LOGICAL_DNS with two localities", inline("LOGICAL_DNS", in(0, one("a")), in(1, one("b"))),
			"load_assignment.endpoints" + oneEntry + "2"},
		{"LOGICAL_DNS without endpoint", inline("LOGICAL_DNS", in(0)), lbEndpoints + oneEntry + "0"},
		{"LOGICAL_DNS with two endpoints", inline("LOGICAL_DNS", in(0, one("a"), one("b"))), lbEndpoints + oneEntry + "2"},
		{"LOGICAL_DNS whose endpoint is not set", inline("LOGICAL_DNS", in(0, `lb_endpoints{}`)),
			lbEndpoints + "[0]: host_identifier must be endpoint, is not set"},
		{"LOGICAL_DNS without address", inline("LOGICAL_DNS", in(0, `lb_endpoints{endpoint{}}`)),
			lbEndpoints + "[0].endpoint.address: must be socket_address, is not set"},
		{"LOGICAL_DNS with a named port", inline("LOGICAL_DNS", in(0, `lb_endpoints{endpoint{address{
			socket_address{address:"name.test" named_port:"http"}}}}`)), "@: port_specifier must be port_value, is named_port"},
		{"LOGICAL_DNS with an empty host and port 0", inline("LOGICAL_DNS", in(0, `lb_endpoints{endpoint{address{
			socket_address{port_value:0}}}}`)), "@.address: must not be empty; @.port_value: must be from 1 to 65535, is 0"},
		{"a lookup family from the future", inline("LOGICAL_DNS", in(0, one("a"))) + `dns_lookup_family:77`,
			"dns_lookup_family: unknown family 77; this client knows AUTO, ALL, V4_ONLY, V6_ONLY and V4_PREFERRED"},
		{"a refresh rate of 1ms", inline("STRICT_DNS", in(0, one("a"))) + `dns_refresh_rate{nanos:1000000}`,
			"dns_refresh_rate: must be more than 1ms, is 1ms"},
		{"a negative refresh rate", inline("STRICT_DNS", in(0, one("a"))) + `dns_refresh_rate{seconds:-1}`,
			"dns_refresh_rate: is negative: -1s"},
		{"an aggregate of nothing", `cluster_type{typed_config{[ClusterConfig]{}}}`,
			"cluster_type.typed_config.clusters: must have at least one entry"},
		{"an aggregate of a nameless cluster", `cluster_type{typed_config{[ClusterConfig]{clusters:"a" clusters:""}}}`,
			"cluster_type.typed_config.clusters[1]: must not be empty"},
		{"an aggregate of another type", `cluster_type{name:"envoy.clusters.aggregate" typed_config{` + unknownMessage + `}}`,
			`cluster_type: unknown cluster type "envoy.clusters.aggregate" ("` + unknownURL + `"); ` + knownTypes},
	})
	xdstest.Parallel(t, "an aggregate that cannot be read", func(t *testing.T) {
		unreadable := xdsmsg.AggregateCluster("blue", "a")
		unreadable.GetClusterType().TypedConfig.Value = []byte{0xff}
		if faults := decodeFaults(t, ClusterType, unreadable); len(faults) != 1 || faults[0].Path != "cluster_type.typed_config" {
			t.Errorf("faults = %v, want one of cluster_type.typed_config", faults)
		}
	})
}
