package xdsresource

import (
	"fmt"
	"strings"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	maglevpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	roundrobinpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

func edsCluster(edits ...func(*clusterpb.Cluster)) *clusterpb.Cluster {
	c := xdsmsg.EDSCluster("blue", "")
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func policies(configs ...*anypb.Any) *clusterpb.LoadBalancingPolicy {
	pb := &clusterpb.LoadBalancingPolicy{}
	for _, config := range configs {
		pb.Policies = append(pb.Policies, &clusterpb.LoadBalancingPolicy_Policy{
			TypedExtensionConfig: &corepb.TypedExtensionConfig{TypedConfig: config},
		})
	}
	return pb
}

func wrrLocality(child *clusterpb.LoadBalancingPolicy) *anypb.Any {
	return xdsmsg.Any(&wrrpb.WrrLocality{EndpointPickingPolicy: child})
}

func nestedWRR(depth int) *clusterpb.LoadBalancingPolicy {
	p := policies(xdsmsg.Any(&roundrobinpb.RoundRobin{}))
	for range depth - 1 {
		p = policies(wrrLocality(p))
	}
	return p
}

// passedOver is what is said of an entry of load_balancing_policy.
func passedOver(i int, typeURL string) xdsclient.Ignored {
	return xdsclient.Ignored{
		Path:   fmt.Sprintf("load_balancing_policy.policies[%d].typed_extension_config.typed_config", i),
		Reason: fmt.Sprintf("this client has no load balancing policy of type %q", typeURL),
		Places: 1,
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	rr := xdsmsg.Any(&roundrobinpb.RoundRobin{})
	lb := func(p *clusterpb.LoadBalancingPolicy) func(*clusterpb.Cluster) {
		return func(c *clusterpb.Cluster) { c.LoadBalancingPolicy = p }
	}
	for _, tc := range []struct {
		given    string
		resource *clusterpb.Cluster
		want     Cluster
	}{
		{"no service name", edsCluster(), Cluster{Name: "blue", EDSServiceName: "blue", LBPolicy: "round_robin"}},
		{
			"a service name, from self", edsCluster(func(c *clusterpb.Cluster) {
				c.EdsClusterConfig = &clusterpb.Cluster_EdsClusterConfig{EdsConfig: self(), ServiceName: "svc"}
			}),
			Cluster{Name: "blue", EDSServiceName: "svc", LBPolicy: "round_robin"},
		}, {
			"an xdstp name", edsCluster(func(c *clusterpb.Cluster) {
				c.Name, c.EdsClusterConfig.ServiceName = "xdstp://a/envoy.config.cluster.v3.Cluster/b", "svc"
			}),
			Cluster{Name: "xdstp://a/envoy.config.cluster.v3.Cluster/b", EDSServiceName: "svc", LBPolicy: "round_robin"},
		}, {
			"load reports to self", edsCluster(func(c *clusterpb.Cluster) { c.LrsServer = self() }),
			Cluster{Name: "blue", EDSServiceName: "blue", LBPolicy: "round_robin", Load: &LoadReporting{}},
		}, {
			"load_balancing_policy round robin", edsCluster(lb(policies(rr))),
			Cluster{Name: "blue", EDSServiceName: "blue", LBPolicy: "round_robin", AcrossLocalities: true},
		}, {
			"load_balancing_policy round robin in WrrLocality", edsCluster(lb(policies(wrrLocality(policies(rr))))),
			Cluster{Name: "blue", EDSServiceName: "blue", LBPolicy: "round_robin"},
		}, {
			"load_balancing_policy behind unknown ones",
			edsCluster(lb(policies(nil, &anypb.Any{TypeUrl: unknownURL}, xdsmsg.Any(&maglevpb.Maglev{}), rr))),
			Cluster{Name: "blue", EDSServiceName: "blue", LBPolicy: "round_robin", AcrossLocalities: true, Ignored: []xdsclient.Ignored{
				passedOver(0, ""), passedOver(1, unknownURL), passedOver(2, "type.googleapis.com/envoy.extensions.load_balancing_policies.maglev.v3.Maglev"),
			}},
		}, {
			"load_balancing_policy instead of lb_policy (gRFC A52)",
			edsCluster(lb(policies(rr)), func(c *clusterpb.Cluster) { c.LbPolicy = clusterpb.Cluster_MAGLEV }),
			Cluster{Name: "blue", EDSServiceName: "blue", LBPolicy: "round_robin", AcrossLocalities: true},
		}, {
			"16 policies within each other (gRFC A52)", edsCluster(lb(nestedWRR(16))),
			Cluster{Name: "blue", EDSServiceName: "blue", LBPolicy: "round_robin"},
		},
	} {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			if tc.want.MaxRequests == 0 {
				tc.want.MaxRequests = DefaultMaxRequests
			}
			tc.want.Sessions = DefaultSessions
			xdstest.Equal(t, "Cluster", &tc.want, mustDecode[Cluster](t, ClusterType, tc.resource))
		})
	}
}

func TestClusterFaults(t *testing.T) {
	t.Parallel()
	lb := func(p *clusterpb.LoadBalancingPolicy) *clusterpb.Cluster {
		return edsCluster(func(c *clusterpb.Cluster) { c.LoadBalancingPolicy = p })
	}
	ofType := func(kind clusterpb.Cluster_DiscoveryType) *clusterpb.Cluster {
		return edsCluster(func(c *clusterpb.Cluster) { c.ClusterDiscoveryType = &clusterpb.Cluster_Type{Type: kind} })
	}
	unknown := &anypb.Any{TypeUrl: unknownURL}
	const lbPath, typedConfig = "load_balancing_policy", ".policies[0].typed_extension_config.typed_config"
	const knows, types = "; " + knownPolicies, "; " + knownTypes
	checkAllFaults(t, ClusterType, []faultTest{
		{"type ORIGINAL_DST", ofType(clusterpb.Cluster_ORIGINAL_DST), []fault{{"type", "unknown cluster type ORIGINAL_DST" + types}}},
		{"a type from the future", ofType(77), []fault{{"type", "unknown cluster type 77" + types}}},
		{"no type", edsCluster(func(c *clusterpb.Cluster) { c.ClusterDiscoveryType = nil }), []fault{{"type", "the cluster type is not set" + types}}},
		{
			"a custom type",
			edsCluster(func(c *clusterpb.Cluster) {
				c.ClusterDiscoveryType = &clusterpb.Cluster_ClusterType{ClusterType: &clusterpb.Cluster_CustomClusterType{Name: "envoy.clusters.x", TypedConfig: unknown}}
			}),
			[]fault{{"cluster_type", `unknown cluster type "envoy.clusters.x" ("` + unknownURL + `")` + types}},
		}, {
			"EDS from a file", edsCluster(func(c *clusterpb.Cluster) { c.EdsClusterConfig.EdsConfig = filePath() }),
			[]fault{{"eds_cluster_config.eds_config", "must be ads or self, is path"}},
		}, {
			"no EDS config", edsCluster(func(c *clusterpb.Cluster) { c.EdsClusterConfig = nil }),
			[]fault{{"eds_cluster_config.eds_config", "must be ads or self, is not set"}},
		}, {
			"an xdstp name and no service name (gRFC A47)", edsCluster(func(c *clusterpb.Cluster) { c.Name = "xdstp://a/b/c" }),
			[]fault{{"eds_cluster_config.service_name", "must not be empty in a cluster whose name starts with xdstp:"}},
		}, {
			"another lb_policy", edsCluster(func(c *clusterpb.Cluster) { c.LbPolicy = clusterpb.Cluster_MAGLEV }),
			[]fault{{"lb_policy", "unknown load balancing policy MAGLEV; this client knows ROUND_ROBIN, LEAST_REQUEST, RING_HASH and RANDOM"}},
		}, {
			"an empty load_balancing_policy", lb(policies()),
			[]fault{{lbPath + ".policies", "no known load balancing policy among []" + knows}},
		}, {
			"only unknown policies", lb(policies(unknown, nil)),
			[]fault{{lbPath + ".policies", `no known load balancing policy among ["` + unknownURL + `" ""]` + knows}},
		}, {
			"many unknown policies", lb(policies(nil, nil, nil, nil, nil, nil, nil)),
			[]fault{{lbPath + ".policies", `no known load balancing policy among ["" "" "" "" "" …]` + knows}},
		}, {
			"a known policy at fault before a good one (gRFC A52)",
			lb(policies(wrrLocality(policies(unknown)), xdsmsg.Any(&roundrobinpb.RoundRobin{}))),
			[]fault{{lbPath + typedConfig + ".endpoint_picking_policy.policies", `no known load balancing policy among ["` + unknownURL + `"]` + knows}},
		}, {
			"17 policies within each other (gRFC A52)", lb(nestedWRR(17)),
			[]fault{{lbPath + strings.Repeat(typedConfig+".endpoint_picking_policy", 16), "has more than 16 policies within each other"}},
		}, {
			"load reports to elsewhere", edsCluster(func(c *clusterpb.Cluster) { c.LrsServer = xdsmsg.ADS() }),
			[]fault{{"lrs_server", "must be self, is ads"}},
		}, {
			"several faults", &clusterpb.Cluster{LbPolicy: clusterpb.Cluster_MAGLEV, LrsServer: filePath()},
			[]fault{
				{"name", "must not be empty"},
				{"type", "the cluster type is not set" + types},
				{"lb_policy", "unknown load balancing policy MAGLEV; this client knows ROUND_ROBIN, LEAST_REQUEST, RING_HASH and RANDOM"},
				{"lrs_server", "must be self, is path"},
			},
		},
	})
}

func TestClusterWithUnreadablePolicy(t *testing.T) {
	t.Parallel()
	for _, m := range []proto.Message{&roundrobinpb.RoundRobin{}, &wrrpb.WrrLocality{}} {
		config := xdsmsg.Any(m)
		config.Value = []byte{0xff}
		faults := decodeFaults(t, ClusterType, edsCluster(func(c *clusterpb.Cluster) { c.LoadBalancingPolicy = policies(config) }))
		want := "cannot be read as " + string(m.ProtoReflect().Descriptor().FullName())
		if len(faults) != 1 || !strings.HasPrefix(faults[0].Problem, want) {
			t.Errorf("faults = %v, want one that starts with %q", faults, want)
		}
	}
}
