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
	for _, tc := range []struct {
		name   string
		policy *clusterpb.LoadBalancingPolicy
		client string
		want   string // how the policy and its configuration begin
		across bool
		also   string
	}{
		{"Maglev in dynxds", policies(&maglevpb.Maglev{}, ring), dialect.UserAgentDynxds, xdsresource.PolicyMaglev, true, ""},
		{"Maglev in Envoy", policies(&maglevpb.Maglev{}, ring), dialect.UserAgentEnvoy, xdsresource.PolicyMaglev, true, ""},
		{"Maglev in Go", policies(&maglevpb.Maglev{}, ring), dialect.UserAgentGo, `ring_hash_experimental {"maxRingSize":8388608,"minRingSize":7}`, true, "policies[0].typed_extension_config.typed_config: "},
		{"Maglev in JS", policies(&maglevpb.Maglev{}, ring), dialect.UserAgentJS, "ring_hash_experimental", true, "Maglev"},
		{"Maglev in C-core", policies(&maglevpb.Maglev{}, ring), cCore, "ring_hash_experimental", true, "Maglev"},
		{"random", policies(&randompb.Random{}, perLocality(&roundrobinpb.RoundRobin{})), dialect.UserAgentGo, "round_robin", false, "Random"},
		{"a subset in Go", policies(&subsettingpb.RandomSubsetting{SubsetSize: wrapperspb.UInt32(2), ChildPolicy: policies(ring)}, ring), dialect.UserAgentGo, "ring_hash_experimental", true, "RandomSubsetting"},
		{"a subset in Envoy", policies(&subsettingpb.RandomSubsetting{SubsetSize: wrapperspb.UInt32(2), ChildPolicy: policies(ring)}, &randompb.Random{}), dialect.UserAgentEnvoy, xdsresource.PolicyRandom, true, "RandomSubsetting"},
		{"within a locality", policies(perLocality(&randompb.Random{}, &roundrobinpb.RoundRobin{})), dialect.UserAgentGo, "round_robin", false, "endpoint_picking_policy.policies[0]"},
		{"slow start in dynxds", policies(perLocality(slow)), dialect.UserAgentDynxds, xdsresource.PolicySlowStart, false, ""},
		{"slow start in Go", policies(perLocality(slow)), dialect.UserAgentGo, "round_robin", false,
			"policies[0].typed_extension_config.typed_config.slow_start_config: " + dialect.UserAgentGo + slowIgnored},
		{"least requests in Go", policies(least, ring), dialect.UserAgentGo, "least_request_experimental", true, dialect.UserAgentGo + slowIgnored},
		{"least requests in C-core", policies(perLocality(least, &roundrobinpb.RoundRobin{})), cCore, "round_robin", false, "LeastRequest"},
		{"least requests in JS", policies(least, ring), dialect.UserAgentJS, "ring_hash_experimental", true, "LeastRequest"},
		{"a policy of dynxds by its name", policies(custom(xdsresource.PolicyRandom), ring), dialect.UserAgentGo, "ring_hash_experimental", true, "TypedStruct"},
		{"gRPC's policy by its name", policies(custom("round_robin"), ring), dialect.UserAgentGo, "round_robin", true, ""},
		{"no policy that it has", policies(&maglevpb.Maglev{}), dialect.UserAgentGo, xdsresource.PolicyMaglev, true, dialect.UserAgentGo + " has no policy of load_balancing_policy"},
		{"no policy within a locality", policies(perLocality(least), ring), cCore, xdsresource.PolicySlowStart, false, cCore + " has no policy of load_balancing_policy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cluster := xdsmsg.EDSCluster("a", "")
			cluster.LoadBalancingPolicy = tc.policy
			checkPolicy(t, cluster, tc.client, tc.want, tc.across, tc.also)
		})
	}
}

// checkPolicy explains a cluster of a client. The policy and its configuration begin with want, and the text has also.
func checkPolicy(t *testing.T, cluster *clusterpb.Cluster, client, want string, across bool, also string) {
	t.Helper()
	s := clustersSource(cluster, xdsmsg.SimpleEndpoints("a", "10.0.0.1:80"))
	s.Client.Name = client
	e := mustExplain(t, s, Request{})
	settings, text := e.Clusters[0].Settings, e.Text()
	if got := settings.Policy + " " + string(settings.PolicyConfig); !strings.HasPrefix(got, want) || settings.AcrossLocalities != across {
		t.Errorf("the policy is %s, across localities: %t; want %s, %t", got, settings.AcrossLocalities, want, across)
	}
	if !strings.Contains(text, also) {
		t.Errorf("the text does not have %q:\n%s", also, text)
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
	both := xdsmsg.EDSCluster("a", "")
	both.LbPolicy, both.LoadBalancingPolicy = clusterpb.Cluster_MAGLEV, policies(&maglevpb.Maglev{}, &roundrobinpb.RoundRobin{})
	for _, tc := range []struct {
		name    string
		cluster *clusterpb.Cluster
		client  string
		want    string
		across  bool
		also    string
	}{
		{"slow start in dynxds", roundRobin, dialect.UserAgentDynxds, xdsresource.PolicySlowStart, false, ""},
		{"slow start in Go", roundRobin, dialect.UserAgentGo, "round_robin ", false, "round_robin_lb_config.slow_start_config: gRPC Go ignores slow start"},
		{"least requests in Go", least, dialect.UserAgentGo, "least_request_experimental ", false, "least_request_lb_config.slow_start_config: gRPC Go ignores slow start"},
		{"least requests in JS", least, dialect.UserAgentJS, "", false, dialect.UserAgentJS + " rejects the policy LEAST_REQUEST"},
		{"both in Go", both, dialect.UserAgentGo, "round_robin ", true, dialect.UserAgentGo + " rejects the policy MAGLEV"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			checkPolicy(t, tc.cluster, tc.client, tc.want, tc.across, tc.also)
		})
	}
}

// Only gRPC-Go looks at lb_policy beside load_balancing_policy.
func TestOldPolicyBesideTheNewOne(t *testing.T) {
	t.Parallel()
	cluster := xdsmsg.EDSCluster("a", "")
	cluster.LbPolicy, cluster.LoadBalancingPolicy = clusterpb.Cluster_MAGLEV, policies(&roundrobinpb.RoundRobin{})
	s := clustersSource(cluster, xdsmsg.SimpleEndpoints("a", "10.0.0.1:80"))
	s.Client.Name = dialect.UserAgentJS
	if text := mustExplain(t, s, Request{}).Text(); strings.Contains(text, "rejects") {
		t.Errorf("the client rejects nothing:\n%s", text)
	}
}
