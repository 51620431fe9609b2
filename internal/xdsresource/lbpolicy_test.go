package xdsresource

import (
	"fmt"
	"testing"
	"time"

	udpapb "github.com/cncf/xds/go/udpa/type/v1"
	xdspb "github.com/cncf/xds/go/xds/type/v3"
	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clientwrrpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	commonpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	leastrequestpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	maglevpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	pickfirstpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	randompb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	subsettingpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random_subsetting/v3"
	ringhashpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	roundrobinpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// policy is the part of a Cluster that lb_policy and load_balancing_policy make.
type policy struct {
	Name, Config string
	Across       bool
}

func policyOf(c *Cluster) policy { return policy{c.LBPolicy, c.LBConfig, c.AcrossLocalities} }

func structOf(t testing.TB, fields map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(fields)
	xdstest.NoError(t, err)
	return s
}

// gRFC A52, "xDS LB Policy Registry".
func TestLoadBalancingPolicy(t *testing.T) {
	t.Parallel()
	custom := func(url string) *xdspb.TypedStruct {
		return &xdspb.TypedStruct{TypeUrl: url, Value: structOf(t, map[string]any{"choiceCount": 3})}
	}
	for _, tc := range []struct {
		given string
		pb    proto.Message
		want  policy
	}{
		{"round robin", &roundrobinpb.RoundRobin{}, policy{"round_robin", "", true}},
		{"random", &randompb.Random{}, policy{PolicyRandom, "", true}},
		{"least request", &leastrequestpb.LeastRequest{}, policy{"least_request_experimental", `{}`, true}},
		{"least request of 5 (gRFC A48)", &leastrequestpb.LeastRequest{ChoiceCount: wrapperspb.UInt32(5)},
			policy{"least_request_experimental", `{"choiceCount":5}`, true}},
		{"pick first, shuffled (gRFC A62)", &pickfirstpb.PickFirst{ShuffleAddressList: true},
			policy{"pick_first", `{"shuffleAddressList":true}`, true}},
		{"weighted round robin with defaults (gRFC A58)", &clientwrrpb.ClientSideWeightedRoundRobin{},
			policy{"weighted_round_robin", `{}`, true}},
		{"weighted round robin with all (gRFC A58)", &clientwrrpb.ClientSideWeightedRoundRobin{
			EnableOobLoadReport: wrapperspb.Bool(true), OobReportingPeriod: durationpb.New(time.Second),
			BlackoutPeriod: durationpb.New(2 * time.Second), WeightExpirationPeriod: durationpb.New(3 * time.Minute),
			WeightUpdatePeriod: durationpb.New(1500 * time.Millisecond), ErrorUtilizationPenalty: wrapperspb.Float(0.5),
		}, policy{"weighted_round_robin", `{"blackoutPeriod":"2s","enableOobLoadReport":true,"errorUtilizationPenalty":0.5,` +
			`"oobReportingPeriod":"1s","weightExpirationPeriod":"180s","weightUpdatePeriod":"1.500s"}`, true}},
		{"ring hash", &ringhashpb.RingHash{HashFunction: ringhashpb.RingHash_XX_HASH},
			policy{PolicyRingHash, `{"maxRingSize":8388608,"minRingSize":1024}`, true}},
		{"ring hash with sizes", &ringhashpb.RingHash{MinimumRingSize: wrapperspb.UInt64(10), MaximumRingSize: wrapperspb.UInt64(20)},
			policy{PolicyRingHash, `{"maxRingSize":20,"minRingSize":10}`, true}},
		{"round robin with slow start", &roundrobinpb.RoundRobin{SlowStartConfig: &commonpb.SlowStartConfig{
			SlowStartWindow: durationpb.New(time.Second), Aggression: &corepb.RuntimeDouble{DefaultValue: 1.5}, MinWeightPercent: &typepb.Percent{Value: 2.5},
		}}, policy{PolicySlowStart, `{"aggression":1.5,"minWeightPercent":2.5,"windowNanos":1000000000}`, true}},
		{"round robin with an aggression that Envoy ignores", &roundrobinpb.RoundRobin{SlowStartConfig: &commonpb.SlowStartConfig{
			SlowStartWindow: durationpb.New(time.Second), Aggression: &corepb.RuntimeDouble{DefaultValue: -1},
		}}, policy{PolicySlowStart, `{"windowNanos":1000000000}`, true}},
		{"least request with slow start", &leastrequestpb.LeastRequest{
			ChoiceCount: wrapperspb.UInt32(70), SlowStartConfig: &commonpb.SlowStartConfig{SlowStartWindow: durationpb.New(time.Second)},
		}, policy{PolicySlowStart, `{"choiceCount":70,"windowNanos":1000000000}`, true}},
		{"Maglev", &maglevpb.Maglev{}, policy{PolicyMaglev, `{}`, true}},
		{"Maglev with a size", &maglevpb.Maglev{TableSize: wrapperspb.UInt64(1009)}, policy{PolicyMaglev, `{"tableSize":1009}`, true}},
		{"a TypedStruct that names Maglev", &xdspb.TypedStruct{TypeUrl: "/" + PolicyMaglev, Value: structOf(t, map[string]any{"tableSize": 7})},
			policy{PolicyMaglev, `{"tableSize":7}`, true}},
		{"a TypedStruct of xds", custom("type.googleapis.com/least_request_experimental"),
			policy{"least_request_experimental", `{"choiceCount":3}`, true}},
		{"a TypedStruct of udpa", &udpapb.TypedStruct{TypeUrl: "x/y/round_robin"}, policy{"round_robin", `{}`, true}},
		{"a TypedStruct that names ring hash (gRFC A76)", &xdspb.TypedStruct{TypeUrl: "/" + PolicyRingHash,
			Value: structOf(t, map[string]any{"requestHashHeader": "user"})},
			policy{PolicyRingHash, `{"requestHashHeader":"user"}`, true}},
		{"a TypedStruct of a name that is not registered is skipped", custom("type.googleapis.com/myorg.Unknown"),
			policy{"round_robin", "", true}},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			behind := xdsmsg.Any(&roundrobinpb.RoundRobin{})
			for _, within := range []bool{false, true} {
				list, want := policies(xdsmsg.Any(tc.pb), behind), tc.want
				if within {
					list, want.Across = policies(wrrLocality(list)), false
				}
				c := edsCluster(func(c *clusterpb.Cluster) { c.LoadBalancingPolicy = list })
				xdstest.Equal(t, fmt.Sprintf("policy, in WrrLocality %v", within), want, policyOf(mustDecode[Cluster](t, ClusterType, c)))
			}
		})
	}
}

// gRFC A68, "Integration with xDS LB Policy Registry": a subset of a priority's endpoints or of each
// locality's, for any policy.
func TestRandomSubsetting(t *testing.T) {
	t.Parallel()
	of := func(size uint32, child proto.Message) *subsettingpb.RandomSubsetting {
		packed, ok := child.(*anypb.Any)
		if !ok {
			packed = xdsmsg.Any(child)
		}
		return &subsettingpb.RandomSubsetting{SubsetSize: wrapperspb.UInt32(size), ChildPolicy: policies(packed)}
	}
	rr := &roundrobinpb.RoundRobin{}
	for _, tc := range []struct {
		given  string
		list   *clusterpb.LoadBalancingPolicy
		want   Subsets
		policy policy
	}{
		{"none", policies(xdsmsg.Any(rr)), Subsets{}, policy{"round_robin", "", true}},
		{"of a priority", policies(xdsmsg.Any(of(5, rr))), Subsets{OfPriority: 5}, policy{"round_robin", "", true}},
		{"of ring hash", policies(xdsmsg.Any(of(5, &ringhashpb.RingHash{MaximumRingSize: wrapperspb.UInt64(2000)}))),
			Subsets{OfPriority: 5}, policy{PolicyRingHash, `{"maxRingSize":2000,"minRingSize":1024}`, true}},
		{"of each locality", policies(wrrLocality(policies(xdsmsg.Any(of(5, rr))))), Subsets{OfLocality: 5}, policy{"round_robin", "", false}},
		{"of a priority, and then by locality", policies(xdsmsg.Any(of(5, wrrLocality(policies(xdsmsg.Any(rr)))))),
			Subsets{OfPriority: 5}, policy{"round_robin", "", false}},
		{"of both", policies(xdsmsg.Any(of(5, wrrLocality(policies(xdsmsg.Any(of(2, rr))))))), Subsets{5, 2}, policy{"round_robin", "", false}},
		{"of a subset", policies(xdsmsg.Any(of(5, of(3, rr)))), Subsets{OfPriority: 3}, policy{"round_robin", "", true}},
		{"of a subset that has fewer", policies(xdsmsg.Any(of(3, of(5, rr)))), Subsets{OfPriority: 3}, policy{"round_robin", "", true}},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			c := mustDecode[Cluster](t, ClusterType, edsCluster(func(c *clusterpb.Cluster) { c.LoadBalancingPolicy = tc.list }))
			xdstest.Equal(t, "policy", tc.policy, policyOf(c))
			xdstest.Equal(t, "subsets", tc.want, c.Subsets)
		})
	}
}

func TestLBPolicy(t *testing.T) {
	t.Parallel()
	checkEach(t, "policy", func(t *testing.T, edit func(*clusterpb.Cluster)) policy {
		return policyOf(mustDecode[Cluster](t, ClusterType, edsCluster(edit)))
	}, rows[func(*clusterpb.Cluster), policy]{
		{"ROUND_ROBIN", func(c *clusterpb.Cluster) {}, policy{"round_robin", "", false}},
		{"RANDOM", func(c *clusterpb.Cluster) { c.LbPolicy = clusterpb.Cluster_RANDOM }, policy{PolicyRandom, "", false}},
		{"LEAST_REQUEST", func(c *clusterpb.Cluster) { c.LbPolicy = clusterpb.Cluster_LEAST_REQUEST },
			policy{"least_request_experimental", `{}`, false}},
		{"LEAST_REQUEST of 7", func(c *clusterpb.Cluster) {
			c.LbPolicy = clusterpb.Cluster_LEAST_REQUEST
			c.LbConfig = &clusterpb.Cluster_LeastRequestLbConfig_{LeastRequestLbConfig: &clusterpb.Cluster_LeastRequestLbConfig{ChoiceCount: wrapperspb.UInt32(7)}}
		}, policy{"least_request_experimental", `{"choiceCount":7}`, false}},
		{"RING_HASH, always across localities (gRFC A42)", func(c *clusterpb.Cluster) { c.LbPolicy = clusterpb.Cluster_RING_HASH },
			policy{PolicyRingHash, `{"maxRingSize":8388608,"minRingSize":1024}`, true}},
		{"ROUND_ROBIN with slow start", func(c *clusterpb.Cluster) {
			c.LbConfig = &clusterpb.Cluster_RoundRobinLbConfig_{RoundRobinLbConfig: &clusterpb.Cluster_RoundRobinLbConfig{
				SlowStartConfig: &clusterpb.Cluster_SlowStartConfig{SlowStartWindow: durationpb.New(time.Minute)}}}
		}, policy{PolicySlowStart, `{"windowNanos":60000000000}`, false}},
		{"ROUND_ROBIN with a slow start of no time", func(c *clusterpb.Cluster) {
			c.LbConfig = &clusterpb.Cluster_RoundRobinLbConfig_{RoundRobinLbConfig: &clusterpb.Cluster_RoundRobinLbConfig{
				SlowStartConfig: &clusterpb.Cluster_SlowStartConfig{MinWeightPercent: &typepb.Percent{Value: 1}}}}
		}, policy{"round_robin", "", false}},
		{"LEAST_REQUEST with slow start", func(c *clusterpb.Cluster) {
			c.LbPolicy = clusterpb.Cluster_LEAST_REQUEST
			c.LbConfig = &clusterpb.Cluster_LeastRequestLbConfig_{LeastRequestLbConfig: &clusterpb.Cluster_LeastRequestLbConfig{
				SlowStartConfig: &clusterpb.Cluster_SlowStartConfig{SlowStartWindow: durationpb.New(time.Second)}}}
		}, policy{PolicySlowStart, `{"choiceCount":2,"windowNanos":1000000000}`, false}},
		{"MAGLEV, always across localities", func(c *clusterpb.Cluster) { c.LbPolicy = clusterpb.Cluster_MAGLEV },
			policy{PolicyMaglev, `{}`, true}},
		{"MAGLEV with a size", func(c *clusterpb.Cluster) {
			c.LbPolicy = clusterpb.Cluster_MAGLEV
			c.LbConfig = &clusterpb.Cluster_MaglevLbConfig_{MaglevLbConfig: &clusterpb.Cluster_MaglevLbConfig{TableSize: wrapperspb.UInt64(5000011)}}
		}, policy{PolicyMaglev, `{"tableSize":5000011}`, true}},
		{"RING_HASH with a size", func(c *clusterpb.Cluster) {
			c.LbPolicy = clusterpb.Cluster_RING_HASH
			c.LbConfig = &clusterpb.Cluster_RingHashLbConfig_{RingHashLbConfig: &clusterpb.Cluster_RingHashLbConfig{MinimumRingSize: wrapperspb.UInt64(3)}}
		}, policy{PolicyRingHash, `{"maxRingSize":8388608,"minRingSize":3}`, true}},
	})
}

func TestInvalidPolicyConfigurations(t *testing.T) {
	t.Parallel()
	const at = "load_balancing_policy.policies[0].typed_extension_config.typed_config"
	const maglevFault = `is not a configuration of load balancing policy "dynxds_maglev": tableSize must be a prime number from 2 to 5000011, is `
	maglev := func(size uint64) *maglevpb.Maglev { return &maglevpb.Maglev{TableSize: wrapperspb.UInt64(size)} }
	const ringFault = `is not a configuration of load balancing policy "ring_hash_experimental": `
	ring := func(least, most uint64) *ringhashpb.RingHash {
		return &ringhashpb.RingHash{MinimumRingSize: wrapperspb.UInt64(least), MaximumRingSize: wrapperspb.UInt64(most)}
	}
	checkEach(t, "faults", func(t *testing.T, pb proto.Message) []fault {
		c := edsCluster(func(c *clusterpb.Cluster) { c.LoadBalancingPolicy = policies(xdsmsg.Any(pb)) })
		return decodeFaults(t, ClusterType, c)
	}, rows[proto.Message, []fault]{
		{"one choice (gRFC A48)", &leastrequestpb.LeastRequest{ChoiceCount: wrapperspb.UInt32(1)},
			[]fault{{at + ".choice_count", "must be at least 2, is 1"}}},
		{"another hash function (gRFC A42)", &ringhashpb.RingHash{HashFunction: ringhashpb.RingHash_MURMUR_HASH_2},
			[]fault{{at + ".hash_function", "must be XX_HASH, is MURMUR_HASH_2"}}},
		{"a ring over 8M (gRFC A42)", ring(1, 8<<20+1), []fault{{at, ringFault + "maxRingSize must be from 1 to 8388608, is 8388609"}}},
		{"a least size over 8M (gRFC A42)", ring(8<<20+1, 1), []fault{{at, ringFault + "minRingSize must be from 1 to 8388608, is 8388609"}}},
		{"a least size over the greatest", ring(3, 2), []fault{{at, ringFault + "minRingSize 3 is more than maxRingSize 2"}}},
		{"a ring of nothing", ring(0, 2), []fault{{at, ringFault + "minRingSize must be from 1 to 8388608, is 0"}}},
		{"a slow start below 0", &roundrobinpb.RoundRobin{SlowStartConfig: &commonpb.SlowStartConfig{SlowStartWindow: durationpb.New(-1)}},
			[]fault{{at + ".slow_start_config.slow_start_window", "is negative: -1ns"}}},
		{"a least weight above 100%", &roundrobinpb.RoundRobin{SlowStartConfig: &commonpb.SlowStartConfig{
			SlowStartWindow: durationpb.New(1), MinWeightPercent: &typepb.Percent{Value: 101},
		}}, []fault{{at + ".slow_start_config.min_weight_percent", "must be from 0 to 100, is 101"}}},
		{"a subset of nothing (gRFC A68)", &subsettingpb.RandomSubsetting{ChildPolicy: policies(xdsmsg.Any(&roundrobinpb.RoundRobin{}))},
			[]fault{{at + ".subset_size", "must be greater than 0"}}},
		{"a subset without a policy (gRFC A68)", &subsettingpb.RandomSubsetting{SubsetSize: wrapperspb.UInt32(1)},
			[]fault{{at + ".child_policy.policies", "no known load balancing policy among []; " + knownPolicies}}},
		{"a table whose size is no prime number", maglev(65536), []fault{{at, maglevFault + "65536"}}},
		{"a table of one entry", maglev(1), []fault{{at, maglevFault + "1"}}},
		{"a table over 5000011", maglev(5000077), []fault{{at, maglevFault + "5000077"}}},
		{"a binary request hash header (gRFC A76)", &xdspb.TypedStruct{TypeUrl: PolicyRingHash,
			Value: structOf(t, map[string]any{"requestHashHeader": "k-bin"})},
			[]fault{{at + ".value", ringFault + `requestHashHeader "k-bin" is not the name of a header with text`}}},
		{"a penalty below 0 (gRFC A58)", &clientwrrpb.ClientSideWeightedRoundRobin{ErrorUtilizationPenalty: wrapperspb.Float(-1)},
			[]fault{{at + ".error_utilization_penalty", "must not be negative, is -1"}}},
		{"a period below 0", &clientwrrpb.ClientSideWeightedRoundRobin{BlackoutPeriod: durationpb.New(-1)},
			[]fault{{at + ".blackout_period", "is negative: -1ns"}}},
		{"a period over 10,000 years", &clientwrrpb.ClientSideWeightedRoundRobin{WeightUpdatePeriod: &durationpb.Duration{Seconds: 4e11}},
			[]fault{{at + ".weight_update_period", "is not a valid duration: seconds: 400000000000, nanos: 0"}}},
	})
	murmur := edsCluster(func(c *clusterpb.Cluster) {
		c.LbPolicy = clusterpb.Cluster_RING_HASH
		c.LbConfig = &clusterpb.Cluster_RingHashLbConfig_{RingHashLbConfig: &clusterpb.Cluster_RingHashLbConfig{
			HashFunction: clusterpb.Cluster_RingHashLbConfig_MURMUR_HASH_2}}
	})
	checkFaults(t, ClusterType, murmur, []fault{{"ring_hash_lb_config.hash_function", "must be XX_HASH, is MURMUR_HASH_2"}})
}

// gRFC A42: sizes above the cap are the cap.
func TestRingSizesAreCapped(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]RingHash{
		``: {MinRingSize: 1024, MaxRingSize: 4096},
		`{"minRingSize":5000,"maxRingSize":8388608}`: {MinRingSize: 4096, MaxRingSize: 4096},
		`{"minRingSize":5000}`:                       {MinRingSize: 4096, MaxRingSize: 4096},
		`{"requestHashHeader":"User-Id"}`:            {MinRingSize: 1024, MaxRingSize: 4096, RequestHashHeader: "user-id"},
	} {
		got, err := ParseRingHash(config)
		if err != nil || got != want {
			t.Errorf("ParseRingHash(%s) = %+v, %v, want %+v", config, got, err, want)
		}
	}
	for _, config := range []string{`[]`, `{"minRingSize":-1}`, `{"maxRingSize":0}`, `{"requestHashHeader":"a b"}`} {
		if _, err := ParseRingHash(config); err == nil {
			t.Errorf("ParseRingHash(%s) has no error", config)
		}
	}
}

// A table costs time and memory: sizes above Envoy's default are that.
func TestMaglevSizesAreCapped(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]uint64{
		``: 65537, `{}`: 65537, `{"tableSize":2}`: 2, `{"tableSize":65521}`: 65521, `{"tableSize":65539}`: 65537, `{"tableSize":5000011}`: 65537,
	} {
		if got, err := ParseMaglev(config); err != nil || got.TableSize != want {
			t.Errorf("ParseMaglev(%s) = %+v, %v, want a size of %d", config, got, err, want)
		}
	}
	for _, config := range []string{`[]`, `{"tableSize":-1}`, `{"tableSize":0}`, `{"tableSize":9}`} {
		if _, err := ParseMaglev(config); err == nil {
			t.Errorf("ParseMaglev(%s) has no error", config)
		}
	}
}

// The share of an endpoint within its window, in 1/1000; the configuration of the policy itself.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		config string
		age    time.Duration
		want   uint32
	}{
		{``, 0, 1000}, {`{"windowNanos":100}`, 0, 100}, {`{"windowNanos":100}`, -5, 100}, {`{"windowNanos":100}`, 50, 500},
		{`{"windowNanos":100}`, 100, 1000}, {`{"windowNanos":100,"minWeightPercent":0}`, 0, 1},
		{`{"windowNanos":9223372036854775807,"aggression":1e300}`, 1, 1000}, {`{"windowNanos":100,"aggression":1e-300}`, 99, 100},
		{`{"windowNanos":100,"choiceCount":99}`, 30, 300},
	} {
		s, err := ParseSlowStart(tc.config)
		if got := s.Permille(tc.age); err != nil || got != tc.want || s.ChoiceCount > 10 {
			t.Errorf("%s after %d: %d of 1000, choices %d (%v), want %d", tc.config, tc.age, got, s.ChoiceCount, err, tc.want)
		}
	}
	for _, config := range []string{`[]`, `{"windowNanos":-1}`, `{"aggression":0}`, `{"minWeightPercent":100.1}`, `{"choiceCount":1}`} {
		if _, err := ParseSlowStart(config); err == nil {
			t.Errorf("ParseSlowStart(%s) has no error", config)
		}
	}
}
