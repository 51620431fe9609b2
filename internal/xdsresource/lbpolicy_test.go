package xdsresource

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc/balancer"
	_ "google.golang.org/grpc/balancer/weightedtarget" // registers weighted_target_experimental
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

// policy is the part of a Cluster that lb_policy and load_balancing_policy make.
type policy struct {
	Name, Config string
	Across       bool
}

func policyOf(c *Cluster) policy { return policy{c.LBPolicy, c.LBConfig, c.AcrossLocalities} }

// channelPolicy is the name of a policy for dynxds itself, as package balancer registers one.
const channelPolicy = "dynxds_test_experimental"

func init() { balancer.Register(channelPolicyBuilder{balancer.Get("round_robin")}) }

type channelPolicyBuilder struct{ balancer.Builder }

func (channelPolicyBuilder) Name() string { return channelPolicy }

// gRFC A52, "xDS LB Policy Registry".
func TestLoadBalancingPolicy(t *testing.T) {
	t.Parallel()
	custom := func(url string) string {
		return `[TypedStruct]{type_url:"` + url + `" value{fields{key:"choiceCount" value{number_value:3}}}}`
	}
	for _, tc := range []struct {
		given, message string
		want           policy
	}{
		{"round robin", `[RoundRobin]{}`, policy{"round_robin", "", true}},
		{"random", `[Random]{}`, policy{PolicyRandom, "", true}},
		{"least request", `[LeastRequest]{}`, policy{"least_request_experimental", `{}`, true}},
		{"least request of 5 (gRFC A48)", `[LeastRequest]{choice_count{value:5}}`,
			policy{"least_request_experimental", `{"choiceCount":5}`, true}},
		{"pick first, shuffled (gRFC A62)", `[PickFirst]{shuffle_address_list:true}`,
			policy{"pick_first", `{"shuffleAddressList":true}`, true}},
		{"weighted round robin with defaults (gRFC A58)", `[ClientSideWeightedRoundRobin]{}`,
			policy{"weighted_round_robin", `{}`, true}},
		{"weighted round robin with all (gRFC A58)", `[ClientSideWeightedRoundRobin]{
			enable_oob_load_report{value:true} oob_reporting_period{seconds:1} blackout_period{seconds:2}
			weight_expiration_period{seconds:180} weight_update_period{seconds:1 nanos:500000000}
			error_utilization_penalty{value:0.5}}`,
			policy{"weighted_round_robin", `{"blackoutPeriod":"2s","enableOobLoadReport":true,"errorUtilizationPenalty":0.5,` +
				`"oobReportingPeriod":"1s","weightExpirationPeriod":"180s","weightUpdatePeriod":"1.500s"}`, true}},
		{"ring hash", `[RingHash]{hash_function:XX_HASH}`, policy{PolicyRingHash, `{"maxRingSize":8388608,"minRingSize":1024}`, true}},
		{"ring hash with sizes", `[RingHash]{minimum_ring_size{value:10} maximum_ring_size{value:20}}`,
			policy{PolicyRingHash, `{"maxRingSize":20,"minRingSize":10}`, true}},
		{"round robin with slow start", `[RoundRobin]{slow_start_config{
			slow_start_window{seconds:1} aggression{default_value:1.5} min_weight_percent{value:2.5}}}`,
			policy{PolicySlowStart, `{"aggression":1.5,"minWeightPercent":2.5,"windowNanos":1000000000}`, true}},
		{"round robin with an aggression that Envoy ignores",
			`[RoundRobin]{slow_start_config{slow_start_window{seconds:1} aggression{default_value:-1}}}`,
			policy{PolicySlowStart, `{"windowNanos":1000000000}`, true}},
		{"least request with slow start", `[LeastRequest]{choice_count{value:70} slow_start_config{slow_start_window{seconds:1}}}`,
			policy{PolicySlowStart, `{"choiceCount":70,"windowNanos":1000000000}`, true}},
		{"Maglev", `[Maglev]{}`, policy{PolicyMaglev, `{}`, true}},
		{"Maglev with a size", `[Maglev]{table_size{value:1009}}`, policy{PolicyMaglev, `{"tableSize":1009}`, true}},
		{"a TypedStruct that names Maglev",
			`[TypedStruct]{type_url:"/dynxds_maglev" value{fields{key:"tableSize" value{number_value:7}}}}`,
			policy{PolicyMaglev, `{"tableSize":7}`, true}},
		{"a TypedStruct of xds", custom("type.googleapis.com/least_request_experimental"),
			policy{"least_request_experimental", `{"choiceCount":3}`, true}},
		{"a TypedStruct of udpa", `[type.googleapis.com/udpa.type.v1.TypedStruct]{type_url:"x/y/round_robin"}`,
			policy{"round_robin", `{}`, true}},
		{"a TypedStruct that names ring hash (gRFC A76)",
			`[TypedStruct]{type_url:"/ring_hash_experimental" value{fields{key:"requestHashHeader" value{string_value:"user"}}}}`,
			policy{PolicyRingHash, `{"requestHashHeader":"user"}`, true}},
		{"a TypedStruct of a name that is not registered is skipped", custom("type.googleapis.com/myorg.Unknown"),
			policy{"round_robin", "", true}},
		{"a TypedStruct of the policy of whole channels is skipped", custom("type.googleapis.com/" + channelPolicy),
			policy{"round_robin", "", true}},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			xdstest.Equal(t, "policy", tc.want, policyOf(mustDecode[Cluster](t, ClusterType, picking(t, tc.message, `[RoundRobin]{}`))))
			tc.want.Across = false
			within := picking(t, wrrLocality(tc.message, `[RoundRobin]{}`))
			xdstest.Equal(t, "policy in WrrLocality", tc.want, policyOf(mustDecode[Cluster](t, ClusterType, within)))
		})
	}
}

// Policies such as weighted_target take those in their configuration from gRPC's registry, where dynxds's own
// are none, or send no RPC.
func TestPoliciesOfOursWithinOthers(t *testing.T) {
	t.Parallel()
	targets := func(policies string) string {
		text := `{"targets":{"a":{"weight":1,"childPolicy":[` + policies + `]}}}`
		config := new(structpb.Struct)
		xdstest.NoError(t, config.UnmarshalJSON([]byte(text)))
		value, err := prototext.Marshal(config)
		xdstest.NoError(t, err)
		return `[TypedStruct]{type_url:"/weighted_target_experimental" value{` + string(value) + `}}`
	}
	const at = `load_balancing_policy.policies[0].typed_extension_config.typed_config.value["targets"]["a"]["childPolicy"]`
	nested := func(policy string) string {
		return `{"weighted_target_experimental":{"targets":{"b":{"weight":1,"childPolicy":[` + policy + `]}}}}`
	}
	deep := `{"round_robin":{}}`
	for range 30 {
		deep = nested(deep)
	}
	for _, tc := range []struct{ given, policies, fault string }{
		{"gRPC's", `{"round_robin":{}}`, ""},
		{"the policy of whole channels", `{"` + channelPolicy + `":{}}`, at + `: load balancing policy "dynxds_test_experimental" is dynxds's own`},
		{"in capital letters", `{"DYNXDS_Test_Experimental":{}}`, at + `: load balancing policy "DYNXDS_Test_Experimental" is dynxds's own`},
		{"as second choice", `{"` + PolicyRandom + `":{}},{"` + PolicyMaglev + `":{}},{"round_robin":{}}`, at + `: load balancing policy "dynxds_random" is dynxds's own`},
		{"deeper", nested(`{"` + PolicySlowStart + `":{}}`), at + `["weighted_target_experimental"]["targets"]["b"]["childPolicy"]: load balancing policy "dynxds_slow_start" is`},
		{"ring hash without a header", `{"ring_hash_experimental":{}}`, at + `: load balancing policy "ring_hash_experimental" within another policy has no hash`},
		{"too deep", deep, `has more than 100 values within each other`},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			_, err := ClusterType.Decode(xdsmsg.Any(picking(t, targets(tc.policies))), xdsclient.DecodeOptions{})
			switch {
			case tc.fault == "":
				xdstest.NoError(t, err)
			case err == nil || !strings.Contains(err.Error(), tc.fault):
				t.Errorf("got error %v, want %q", err, tc.fault)
			}
		})
	}
}

// gRFC A68, "Integration with xDS LB Policy Registry": a subset of a priority's endpoints or of each
// locality's, for any policy.
func TestRandomSubsetting(t *testing.T) {
	t.Parallel()
	of := func(size int, child string) string {
		return fmt.Sprintf(`[RandomSubsetting]{subset_size{value:%d} child_policy{%s}}`, size, policies(child))
	}
	const rr = `[RoundRobin]{}`
	for _, tc := range []struct {
		given, message string
		want           Subsets
		policy         policy
	}{
		{"none", rr, Subsets{}, policy{"round_robin", "", true}},
		{"of a priority", of(5, rr), Subsets{OfPriority: 5}, policy{"round_robin", "", true}},
		{"of ring hash", of(5, `[RingHash]{maximum_ring_size{value:2000}}`),
			Subsets{OfPriority: 5}, policy{PolicyRingHash, `{"maxRingSize":2000,"minRingSize":1024}`, true}},
		{"of each locality", wrrLocality(of(5, rr)), Subsets{OfLocality: 5}, policy{"round_robin", "", false}},
		{"of a priority, and then by locality", of(5, wrrLocality(rr)), Subsets{OfPriority: 5}, policy{"round_robin", "", false}},
		{"of both", of(5, wrrLocality(of(2, rr))), Subsets{5, 2}, policy{"round_robin", "", false}},
		{"of a subset", of(5, of(3, rr)), Subsets{OfPriority: 3}, policy{"round_robin", "", true}},
		{"of a subset that has fewer", of(3, of(5, rr)), Subsets{OfPriority: 3}, policy{"round_robin", "", true}},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			c := mustDecode[Cluster](t, ClusterType, picking(t, tc.message))
			xdstest.Equal(t, "policy", tc.policy, policyOf(c))
			xdstest.Equal(t, "subsets", tc.want, c.Subsets)
		})
	}
}

func TestLBPolicy(t *testing.T) {
	t.Parallel()
	checkEach(t, "policy", func(t *testing.T, fields string) policy {
		return policyOf(mustDecode[Cluster](t, ClusterType, blue(t, fields)))
	}, rows[string, policy]{
		{"ROUND_ROBIN", ``, policy{"round_robin", "", false}},
		{"RANDOM", `lb_policy:RANDOM`, policy{PolicyRandom, "", false}},
		{"LEAST_REQUEST", `lb_policy:LEAST_REQUEST`, policy{"least_request_experimental", `{}`, false}},
		{"LEAST_REQUEST of 7", `lb_policy:LEAST_REQUEST least_request_lb_config{choice_count{value:7}}`,
			policy{"least_request_experimental", `{"choiceCount":7}`, false}},
		{"RING_HASH, always across localities (gRFC A42)", `lb_policy:RING_HASH`,
			policy{PolicyRingHash, `{"maxRingSize":8388608,"minRingSize":1024}`, true}},
		{"ROUND_ROBIN with slow start", `round_robin_lb_config{slow_start_config{slow_start_window{seconds:60}}}`,
			policy{PolicySlowStart, `{"windowNanos":60000000000}`, false}},
		{"ROUND_ROBIN with a slow start of no time", `round_robin_lb_config{slow_start_config{min_weight_percent{value:1}}}`,
			policy{"round_robin", "", false}},
		{"LEAST_REQUEST with slow start",
			`lb_policy:LEAST_REQUEST least_request_lb_config{slow_start_config{slow_start_window{seconds:1}}}`,
			policy{PolicySlowStart, `{"choiceCount":2,"windowNanos":1000000000}`, false}},
		{"MAGLEV, always across localities", `lb_policy:MAGLEV`, policy{PolicyMaglev, `{}`, true}},
		{"MAGLEV with a size", `lb_policy:MAGLEV maglev_lb_config{table_size{value:5000011}}`,
			policy{PolicyMaglev, `{"tableSize":5000011}`, true}},
		{"RING_HASH with a size", `lb_policy:RING_HASH ring_hash_lb_config{minimum_ring_size{value:3}}`,
			policy{PolicyRingHash, `{"maxRingSize":8388608,"minRingSize":3}`, true}},
	})
}

func TestInvalidPolicyConfigurations(t *testing.T) {
	t.Parallel()
	const at = "load_balancing_policy.policies[0].typed_extension_config.typed_config"
	const badMaglev = `@: is not a configuration of load balancing policy "dynxds_maglev": ` +
		`tableSize must be a prime number from 2 to 5000011, is `
	const badRing = `: is not a configuration of load balancing policy "ring_hash_experimental": `
	cluster := func(t testing.TB, message string) *clusterpb.Cluster { return picking(t, message) }
	checkTextFaults(t, ClusterType, at, cluster, []textCase{
		{"one choice (gRFC A48)", `[LeastRequest]{choice_count{value:1}}`, "@.choice_count: must be at least 2, is 1"},
		{"another hash function (gRFC A42)", `[RingHash]{hash_function:MURMUR_HASH_2}`,
			"@.hash_function: must be XX_HASH, is MURMUR_HASH_2"},
		{"a ring over 8M (gRFC A42)", `[RingHash]{minimum_ring_size{value:1} maximum_ring_size{value:8388609}}`,
			"@" + badRing + "maxRingSize must be from 1 to 8388608, is 8388609"},
		{"a least size over 8M (gRFC A42)", `[RingHash]{minimum_ring_size{value:8388609} maximum_ring_size{value:1}}`,
			"@" + badRing + "minRingSize must be from 1 to 8388608, is 8388609"},
		{"a least size over the greatest", `[RingHash]{minimum_ring_size{value:3} maximum_ring_size{value:2}}`,
			"@" + badRing + "minRingSize 3 is more than maxRingSize 2"},
		{"a ring of nothing", `[RingHash]{minimum_ring_size{} maximum_ring_size{value:2}}`,
			"@" + badRing + "minRingSize must be from 1 to 8388608, is 0"},
		{"a slow start below 0", `[RoundRobin]{slow_start_config{slow_start_window{nanos:-1}}}`,
			"@.slow_start_config.slow_start_window: is negative: -1ns"},
		{"a least weight above 100%", `[RoundRobin]{slow_start_config{slow_start_window{nanos:1} min_weight_percent{value:101}}}`,
			"@.slow_start_config.min_weight_percent: must be from 0 to 100, is 101"},
		{"a subset of nothing (gRFC A68)", `[RandomSubsetting]{child_policy{` + policies(`[RoundRobin]{}`) + `}}`,
			"@.subset_size: must be greater than 0"},
		{"a subset without a policy (gRFC A68)", `[RandomSubsetting]{subset_size{value:1}}`,
			"@.child_policy.policies: no known load balancing policy among []; " + knownPolicies},
		{"a table whose size is no prime number", `[Maglev]{table_size{value:65536}}`, badMaglev + "65536"},
		{"a table of one entry", `[Maglev]{table_size{value:1}}`, badMaglev + "1"},
		{"a table over 5000011", `[Maglev]{table_size{value:5000077}}`, badMaglev + "5000077"},
		{"a binary request hash header (gRFC A76)",
			`[TypedStruct]{type_url:"ring_hash_experimental" value{fields{key:"requestHashHeader" value{string_value:"k-bin"}}}}`,
			"@.value" + badRing + `requestHashHeader "k-bin" is not the name of a header with text`},
		{"a penalty below 0 (gRFC A58)", `[ClientSideWeightedRoundRobin]{error_utilization_penalty{value:-1}}`,
			"@.error_utilization_penalty: must not be negative, is -1"},
		{"a period below 0", `[ClientSideWeightedRoundRobin]{blackout_period{nanos:-1}}`, "@.blackout_period: is negative: -1ns"},
		{"a period over 10,000 years", `[ClientSideWeightedRoundRobin]{weight_update_period{seconds:400000000000}}`,
			"@.weight_update_period: is not a valid duration: seconds: 400000000000, nanos: 0"},
	})
	xdstest.Equal(t, "faults of lb_policy", "ring_hash_lb_config.hash_function: must be XX_HASH, is MURMUR_HASH_2",
		faultText(t, ClusterType, blue(t, `lb_policy:RING_HASH ring_hash_lb_config{hash_function:MURMUR_HASH_2}`)))
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
