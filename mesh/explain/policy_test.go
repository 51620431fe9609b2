package explain

import (
	"strings"
	"testing"
	"time"

	xdstypepb "github.com/cncf/xds/go/xds/type/v3"
	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commonpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	leastrequestpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	maglevpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	randompb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	subsettingpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random_subsetting/v3"
	ringhashpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	roundrobinpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// policies is a load_balancing_policy with these entries.
func policies(entries ...proto.Message) *clusterpb.LoadBalancingPolicy {
	list := new(clusterpb.LoadBalancingPolicy)
	for _, m := range entries {
		list.Policies = append(list.Policies, &clusterpb.LoadBalancingPolicy_Policy{TypedExtensionConfig: &corepb.TypedExtensionConfig{TypedConfig: xdsmsg.Any(m)}})
	}
	return list
}

// A client uses the first entry of load_balancing_policy that it has, and no part of it that it does not know.
func TestPolicyIsThatOfTheClient(t *testing.T) {
	t.Parallel()
	const cCore = "gRPC C-core"
	ring := &ringhashpb.RingHash{HashFunction: ringhashpb.RingHash_XX_HASH, MinimumRingSize: wrapperspb.UInt64(7)}
	perLocality := func(entries ...proto.Message) proto.Message {
		return &wrrpb.WrrLocality{EndpointPickingPolicy: policies(entries...)}
	}
	slow := &roundrobinpb.RoundRobin{SlowStartConfig: &commonpb.SlowStartConfig{SlowStartWindow: durationpb.New(time.Minute)}}
	least := &leastrequestpb.LeastRequest{SlowStartConfig: slow.SlowStartConfig}
	custom := func(name string) proto.Message { return &xdstypepb.TypedStruct{TypeUrl: "type.googleapis.com/" + name} }
	const slowIgnored = " ignores slow start"
	for _, tc := range []policyTest{
		{"Maglev in dynxds", clusterWith(&maglevpb.Maglev{}, ring), dialect.UserAgentDynxds, xdsresource.PolicyMaglev, true, ""},
		{"Maglev in Envoy", clusterWith(&maglevpb.Maglev{}, ring), dialect.UserAgentEnvoy, xdsresource.PolicyMaglev, true, ""},
		{"Maglev in Go", clusterWith(&maglevpb.Maglev{}, ring), dialect.UserAgentGo, `ring_hash_experimental {"maxRingSize":8388608,"minRingSize":7}`, true, "policies[0].typed_extension_config.typed_config: "},
		{"Maglev in JS", clusterWith(&maglevpb.Maglev{}, ring), dialect.UserAgentJS, "ring_hash_experimental", true, "Maglev"},
		{"Maglev in C-core", clusterWith(&maglevpb.Maglev{}, ring), cCore, "ring_hash_experimental", true, "Maglev"},
		{"random", clusterWith(&randompb.Random{}, perLocality(&roundrobinpb.RoundRobin{})), dialect.UserAgentGo, "round_robin", false, "Random"},
		{"a subset in Go", clusterWith(&subsettingpb.RandomSubsetting{SubsetSize: wrapperspb.UInt32(2), ChildPolicy: policies(ring)}, ring), dialect.UserAgentGo, "ring_hash_experimental", true, "RandomSubsetting"},
		{"a subset in Envoy", clusterWith(&subsettingpb.RandomSubsetting{SubsetSize: wrapperspb.UInt32(2), ChildPolicy: policies(ring)}, &randompb.Random{}), dialect.UserAgentEnvoy, xdsresource.PolicyRandom, true, "RandomSubsetting"},
		{"within a locality", clusterWith(perLocality(&randompb.Random{}, &roundrobinpb.RoundRobin{})), dialect.UserAgentGo, "round_robin", false, "endpoint_picking_policy.policies[0]"},
		{"slow start in dynxds", clusterWith(perLocality(slow)), dialect.UserAgentDynxds, xdsresource.PolicySlowStart, false, ""},
		{"slow start in Go", clusterWith(perLocality(slow)), dialect.UserAgentGo, "round_robin", false,
			"policies[0].typed_extension_config.typed_config.slow_start_config: " + dialect.UserAgentGo + slowIgnored},
		{"least requests in Go", clusterWith(least, ring), dialect.UserAgentGo, "least_request_experimental", true, dialect.UserAgentGo + slowIgnored},
		{"least requests in C-core", clusterWith(perLocality(least, &roundrobinpb.RoundRobin{})), cCore, "round_robin", false, "LeastRequest"},
		{"least requests in JS", clusterWith(least, ring), dialect.UserAgentJS, "ring_hash_experimental", true, "LeastRequest"},
		{"a policy of dynxds by its name", clusterWith(custom(xdsresource.PolicyRandom), ring), dialect.UserAgentGo, "ring_hash_experimental", true, "TypedStruct"},
		{"gRPC's policy by its name", clusterWith(custom("round_robin"), ring), dialect.UserAgentGo, "round_robin", true, ""},
		{"no policy that it has", clusterWith(&maglevpb.Maglev{}), dialect.UserAgentGo, xdsresource.PolicyMaglev, true, dialect.UserAgentGo + " has no policy of load_balancing_policy"},
		{"no policy within a locality", clusterWith(perLocality(least), ring), cCore, xdsresource.PolicySlowStart, false, cCore + " has no policy of load_balancing_policy"},
	} {
		t.Run(tc.name, tc.run)
	}
}

// clusterWith is a Cluster with these entries in load_balancing_policy.
func clusterWith(entries ...proto.Message) *clusterpb.Cluster {
	c := xdsmsg.EDSCluster("a", "")
	c.LoadBalancingPolicy = policies(entries...)
	return c
}

// policyTest explains a cluster of a client. The policy and its configuration begin with want, and the text has also.
type policyTest struct {
	name         string
	cluster      *clusterpb.Cluster
	client, want string
	across       bool
	also         string
}

func (tc policyTest) run(t *testing.T) {
	t.Parallel()
	s := clustersSource(tc.cluster, xdsmsg.SimpleEndpoints("a", "10.0.0.1:80"))
	s.Client.Name = tc.client
	e := mustExplain(t, s, Request{})
	settings, text := e.Clusters[0].Settings, e.Text()
	if got := settings.Policy + " " + string(settings.PolicyConfig); !strings.HasPrefix(got, tc.want) || settings.AcrossLocalities != tc.across {
		t.Errorf("got policy %s, across localities: %t; want %s, %t", got, settings.AcrossLocalities, tc.want, tc.across)
	}
	if !strings.Contains(text, tc.also) {
		t.Errorf("the text does not have %q:\n%s", tc.also, text)
	}
}

func TestOldPolicyIsThatOfTheClient(t *testing.T) {
	t.Parallel()
	slow := &clusterpb.Cluster_SlowStartConfig{SlowStartWindow: durationpb.New(time.Minute)}
	roundRobin := xdsmsg.EDSCluster("a", "")
	roundRobin.LbConfig = &clusterpb.Cluster_RoundRobinLbConfig_{RoundRobinLbConfig: &clusterpb.Cluster_RoundRobinLbConfig{SlowStartConfig: slow}}
	least := xdsmsg.EDSCluster("a", "")
	least.LbPolicy = clusterpb.Cluster_LEAST_REQUEST
	least.LbConfig = &clusterpb.Cluster_LeastRequestLbConfig_{LeastRequestLbConfig: &clusterpb.Cluster_LeastRequestLbConfig{SlowStartConfig: slow}}
	both := clusterWith(&maglevpb.Maglev{}, &roundrobinpb.RoundRobin{})
	both.LbPolicy = clusterpb.Cluster_MAGLEV
	for _, tc := range []policyTest{
		{"slow start in dynxds", roundRobin, dialect.UserAgentDynxds, xdsresource.PolicySlowStart, false, ""},
		{"slow start in Go", roundRobin, dialect.UserAgentGo, "round_robin ", false, "round_robin_lb_config.slow_start_config: gRPC Go ignores slow start"},
		{"least requests in Go", least, dialect.UserAgentGo, "least_request_experimental ", false, "least_request_lb_config.slow_start_config: gRPC Go ignores slow start"},
		{"least requests in JS", least, dialect.UserAgentJS, "", false, dialect.UserAgentJS + " rejects the policy LEAST_REQUEST"},
		{"both in Go", both, dialect.UserAgentGo, "round_robin ", true, dialect.UserAgentGo + " rejects the policy MAGLEV"},
	} {
		t.Run(tc.name, tc.run)
	}
}

// Only gRPC-Go looks at lb_policy beside load_balancing_policy.
func TestOldPolicyBesideTheNewOne(t *testing.T) {
	t.Parallel()
	cluster := clusterWith(&roundrobinpb.RoundRobin{})
	cluster.LbPolicy = clusterpb.Cluster_MAGLEV
	s := clustersSource(cluster, xdsmsg.SimpleEndpoints("a", "10.0.0.1:80"))
	s.Client.Name = dialect.UserAgentJS
	if text := mustExplain(t, s, Request{}).Text(); strings.Contains(text, "rejects") {
		t.Errorf("the client rejects nothing:\n%s", text)
	}
}
