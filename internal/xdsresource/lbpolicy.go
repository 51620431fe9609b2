package xdsresource

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	clientwrrpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	leastrequestpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	maglevpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	pickfirstpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	randompb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	subsettingpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random_subsetting/v3"
	ringhashpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	roundrobinpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/grpc/balancer"
	_ "google.golang.org/grpc/balancer/leastrequest" // registers least_request_experimental
	_ "google.golang.org/grpc/balancer/pickfirst"    // registers pick_first
	_ "google.golang.org/grpc/balancer/roundrobin"   // registers round_robin
	_ "google.golang.org/grpc/balancer/weightedroundrobin"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/dialect"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/typeurl"
)

// The policies that Cluster.LBPolicy names beside those registered with gRPC.
// They are dynxds's own: gRPC's policy of the first name reads the hash of an RPC from
// where only gRPC's own xDS code can put it, and gRPC has none of the other names.
const (
	PolicyRingHash  = "ring_hash_experimental"
	PolicyRandom    = "dynxds_random"
	PolicyMaglev    = "dynxds_maglev"
	PolicySlowStart = "dynxds_slow_start"
)

// internalPolicies starts the names of dynxds's own policies. Some are registered with gRPC, but only
// for dynxds itself: such a policy never picks an endpoint of a Cluster.
const internalPolicies = "dynxds_"

// isInternal reports whether a policy has a name of dynxds's own. gRPC's registry ignores case.
func isInternal(name string) bool { return strings.HasPrefix(strings.ToLower(name), internalPolicies) }

// ours has dynxds's own policies, with what checks their configurations.
var ours = map[string]func(config string) error{
	PolicyRingHash:  checkBy(ParseRingHash),
	PolicyRandom:    func(string) error { return nil },
	PolicyMaglev:    checkBy(ParseMaglev),
	PolicySlowStart: checkBy(ParseSlowStart),
}

func checkBy[T any](parse func(string) (T, error)) func(string) error {
	return func(config string) error {
		_, err := parse(config)
		return err
	}
}

const (
	policyRoundRobin   = "round_robin"
	policyLeastRequest = "least_request_experimental"
	policyPickFirst    = "pick_first"
	policyWeighted     = "weighted_round_robin"
)

// IsKnownPolicy reports whether a policy is dynxds's own or one of gRPC's that Clusters name by messages
// of their own. Others are the program's.
func IsKnownPolicy(name string) bool {
	switch name {
	case policyRoundRobin, policyLeastRequest, policyPickFirst, policyWeighted:
		return true
	default:
		return ours[name] != nil
	}
}

const (
	lbPolicyPrefix    = "type.googleapis.com/envoy.extensions.load_balancing_policies."
	udpaStructTypeURL = "type.googleapis.com/udpa.type.v1.TypedStruct"
	xdsStructTypeURL  = "type.googleapis.com/xds.type.v3.TypedStruct"
)

// maxLBPolicyDepth bounds policies within policies (gRFC A52).
const maxLBPolicyDepth = 16

// minChoices is the least choice_count (gRFC A48).
const minChoices = 2

const knownPolicies = "this client knows RoundRobin, LeastRequest, PickFirst, ClientSideWeightedRoundRobin, " +
	"RingHash, Maglev and Random, WrrLocality and RandomSubsetting with these, and a TypedStruct that names a policy registered with gRPC"

// lbPolicy decodes the policy of a cluster: load_balancing_policy, or, if that
// is not set, lb_policy (gRFC A52).
func (d clusterDecoder) lbPolicy(pb *clusterpb.Cluster) {
	if policy := pb.GetLoadBalancingPolicy(); policy != nil {
		d.c.AcrossLocalities = true
		d.firstKnownPolicy(faults.Field("load_balancing_policy"), policy, 1)
		return
	}
	switch pb.GetLbPolicy() {
	case clusterpb.Cluster_ROUND_ROBIN:
		d.roundRobin(faults.Field("round_robin_lb_config"), pb.GetRoundRobinLbConfig().GetSlowStartConfig())
	case clusterpb.Cluster_RANDOM:
		d.c.LBPolicy = PolicyRandom
	case clusterpb.Cluster_LEAST_REQUEST:
		config := pb.GetLeastRequestLbConfig()
		d.leastRequest(faults.Field("least_request_lb_config"), config.GetChoiceCount(), config.GetSlowStartConfig())
	case clusterpb.Cluster_RING_HASH:
		at, config := faults.Field("ring_hash_lb_config"), pb.GetRingHashLbConfig()
		d.c.AcrossLocalities = true
		if f := config.GetHashFunction(); f != clusterpb.Cluster_RingHashLbConfig_XX_HASH {
			d.fault(at.Field("hash_function"), "must be XX_HASH, is %v", f)
		}
		d.ringHash(at, config)
	case clusterpb.Cluster_MAGLEV:
		d.c.AcrossLocalities = true
		d.maglev(faults.Field("maglev_lb_config"), pb.GetMaglevLbConfig())
	default:
		d.fault(faults.Field("lb_policy"),
			"unknown load balancing policy %v; this client knows ROUND_ROBIN, LEAST_REQUEST, RING_HASH, MAGLEV and RANDOM", pb.GetLbPolicy())
	}
}

// firstKnownPolicy uses the first entry of a known type. If that entry has an error, later
// ones are not tried.
func (d clusterDecoder) firstKnownPolicy(at *faults.Path, pb *clusterpb.LoadBalancingPolicy, depth int) {
	if depth > maxLBPolicyDepth {
		d.fault(at, "has more than %d policies within each other", maxLBPolicyDepth)
		return
	}
	for i, entry := range pb.GetPolicies() {
		at := at.Item("policies", i).Field("typed_extension_config").Field("typed_config")
		if d.knownPolicy(at, entry.GetTypedExtensionConfig().GetTypedConfig(), depth) {
			return
		}
		d.ignore(at, "this client has no load balancing policy of type %s", faults.Quote(entry.GetTypedExtensionConfig().GetTypedConfig().GetTypeUrl()))
	}
	d.fault(at.Field("policies"), "no known load balancing policy among %s; %s", policyTypes(pb), knownPolicies)
}

// knownPolicy converts one entry to the name of a policy and its configuration
// (gRFC A52, "xDS LB Policy Registry"). It is false if the type is not known.
func (d clusterDecoder) knownPolicy(at *faults.Path, config *anypb.Any, depth int) bool {
	if !d.has(typeurl.Name(config.GetTypeUrl())) {
		return false
	}
	typeURL := config.GetTypeUrl()
	if typeURL == udpaStructTypeURL || typeURL == xdsStructTypeURL {
		typeURL, fields, err := httpfilter.TypedStruct(config)
		if err != nil {
			d.fault(at, "%v", err)
			return true
		}
		return d.customPolicy(at.Field("value"), typeURL, fields)
	}
	message := listedMessage(typeURL)
	if message == nil || !strings.HasPrefix(typeURL, lbPolicyPrefix) {
		return false
	}
	if !d.read(at, config.GetValue(), message) {
		return true
	}
	switch pb := message.(type) {
	case *roundrobinpb.RoundRobin:
		d.roundRobin(at, pb.GetSlowStartConfig())
	case *randompb.Random:
		d.c.LBPolicy = PolicyRandom
	case *wrrpb.WrrLocality:
		d.c.AcrossLocalities = false
		d.firstKnownPolicy(at.Field("endpoint_picking_policy"), pb.GetEndpointPickingPolicy(), depth+1)
	case *subsettingpb.RandomSubsetting:
		d.randomSubsetting(at, pb, depth)
	case *leastrequestpb.LeastRequest:
		d.leastRequest(at, pb.GetChoiceCount(), pb.GetSlowStartConfig())
	case *pickfirstpb.PickFirst:
		d.setPolicy(at, policyPickFirst, map[string]any{"shuffleAddressList": pb.GetShuffleAddressList()})
	case *clientwrrpb.ClientSideWeightedRoundRobin:
		d.clientWRR(at, pb)
	case *ringhashpb.RingHash:
		// DEFAULT_HASH stands for the default of the proto, XX_HASH.
		if f := pb.GetHashFunction(); f != ringhashpb.RingHash_XX_HASH && f != ringhashpb.RingHash_DEFAULT_HASH {
			d.fault(at.Field("hash_function"), "must be XX_HASH, is %v", f)
		}
		d.ringHash(at, pb)
	case *maglevpb.Maglev:
		d.maglev(at, pb)
	default:
		return false
	}
	return true
}

// has reports whether the client has a policy, as far as clients differ.
func (d clusterDecoder) has(name string) bool {
	f := dialect.Policy(name)
	return f == nil || f.On(d.client) == dialect.Obeys
}

// customPolicy uses the policy that a TypedStruct names, with its configuration unchanged.
// It reports false if there is no policy of that name.
func (d clusterDecoder) customPolicy(at *faults.Path, typeURL string, config *structpb.Struct) bool {
	name := typeurl.Name(typeURL)
	if !d.has(name) || ours[name] == nil && (balancer.Get(name) == nil || isInternal(name)) {
		return false
	}
	before := d.faults.Total()
	if d.innerPolicies(at, structpb.NewStructValue(config), 1); d.faults.Total() > before {
		return true
	}
	d.setPolicy(at, name, config.AsMap())
	return true
}

// maxConfigDepth bounds values within values in the configuration of a policy.
const maxConfigDepth = 100

// innerPolicies reports policies of dynxds in the configuration of another policy, such as weighted_target,
// which would take the policy of that name from gRPC's registry. There it is none, or one with which no RPC
// would ever be sent. A policy in a configuration is an object with one field, its name, in a list.
func (d clusterDecoder) innerPolicies(at *faults.Path, v *structpb.Value, depth int) {
	if depth > maxConfigDepth {
		d.fault(at, "has more than %d values within each other", maxConfigDepth)
		return
	}
	fields := v.GetStructValue().GetFields()
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		d.innerPolicies(at.Key(key), fields[key], depth+1)
	}
	for _, item := range v.GetListValue().GetValues() {
		if object := item.GetStructValue().GetFields(); len(object) == 1 {
			for name, config := range object {
				d.innerPolicy(at, name, config)
			}
		}
		d.innerPolicies(at, item, depth+1)
	}
}

func (d clusterDecoder) innerPolicy(at *faults.Path, name string, config *structpb.Value) {
	_, hasHeader := config.GetStructValue().GetFields()["requestHashHeader"]
	switch {
	case isInternal(name):
		d.fault(at, "load balancing policy %s is dynxds's own and cannot be within another policy; a Cluster names it itself, or under WrrLocality or RandomSubsetting", faults.Quote(name))
	case strings.EqualFold(name, PolicyRingHash) && !hasHeader:
		d.fault(at, "load balancing policy %s within another policy has no hash of RPCs: set requestHashHeader (gRFC A76), or have the Cluster name RingHash itself", faults.Quote(name))
	}
}

// roundRobin is gRPC's policy, unless endpoints start slowly.
func (d clusterDecoder) roundRobin(at *faults.Path, slow slowStartConfig) {
	if !d.slowStart(at.Field("slow_start_config"), slow, 0) {
		d.c.LBPolicy = policyRoundRobin
	}
}

// leastRequest is gRFC A48. It is gRPC's policy, unless endpoints start slowly.
func (d clusterDecoder) leastRequest(at *faults.Path, choices *wrapperspb.UInt32Value, slow slowStartConfig) {
	config := map[string]any{}
	if choices != nil {
		if choices.GetValue() < minChoices {
			d.fault(at.Field("choice_count"), "must be at least %d, is %d", minChoices, choices.GetValue())
			return
		}
		config["choiceCount"] = choices.GetValue()
	}
	if !d.slowStart(at.Field("slow_start_config"), slow, numberOr(choices, minChoices)) {
		d.setPolicy(at, policyLeastRequest, config)
	}
}

// clientWRR is gRFC A58. Unset fields keep the defaults of gRPC's policy.
func (d clusterDecoder) clientWRR(at *faults.Path, pb *clientwrrpb.ClientSideWeightedRoundRobin) {
	config, m := map[string]any{}, pb.ProtoReflect()
	if penalty := pb.GetErrorUtilizationPenalty(); penalty != nil && !(penalty.GetValue() >= 0) {
		d.fault(at.Field("error_utilization_penalty"), "must not be negative, is %v", penalty.GetValue())
		return
	}
	for _, name := range usedFields[m.Descriptor().FullName()] {
		field := m.Descriptor().Fields().ByName(protoreflect.Name(name))
		if !m.Has(field) {
			continue
		}
		value, before := m.Get(field).Message().Interface(), d.faults.Total()
		if period, ok := value.(*durationpb.Duration); ok {
			d.duration(at.Field(name), period)
		}
		if text, err := protojson.Marshal(value); err == nil && d.faults.Total() == before {
			config[field.JSONName()] = json.RawMessage(text)
		}
	}
	d.setPolicy(at, policyWeighted, config)
}

// setPolicy sets the policy of the cluster if the policy accepts config, which gRFC A52
// requires to be checked before it is used.
func (d clusterDecoder) setPolicy(at *faults.Path, name string, config map[string]any) {
	text, err := json.Marshal(config)
	if err == nil {
		err = checkPolicy(name, text)
	}
	if err != nil {
		d.fault(at, "is not a configuration of load balancing policy %s: %v", faults.Quote(name), err)
		return
	}
	d.c.LBPolicy, d.c.LBConfig = name, string(text)
}

// checkPolicy returns the error in the configuration of a policy that is registered with gRPC.
func checkPolicy(name string, config json.RawMessage) error {
	if check := ours[name]; check != nil {
		return check(string(config))
	}
	if parser, ok := balancer.Get(name).(balancer.ConfigParser); ok {
		_, err := parser.ParseConfig(config)
		return err
	}
	return nil
}

// parsePolicy reads the configuration of a policy in JSON over its defaults. The keys are the names
// of the fields, in any case.
func parsePolicy[T any](config string, c T) (T, error) {
	if config == "" {
		return c, nil
	}
	err := json.Unmarshal([]byte(config), &c)
	return c, err
}

// policyTypes lists the types of the entries for a message.
func policyTypes(pb *clusterpb.LoadBalancingPolicy) string {
	var types []string
	for i, entry := range pb.GetPolicies() {
		if i == maxListed {
			types = append(types, "…")
			break
		}
		types = append(types, faults.Quote(entry.GetTypedExtensionConfig().GetTypedConfig().GetTypeUrl()))
	}
	return "[" + strings.Join(types, " ") + "]"
}

// maxListed bounds lists of values in messages.
const maxListed = 5

// Subsets are the sizes of the random subsets of endpoints that a client uses (gRFC A68). 0: all.
type Subsets struct {
	// OfPriority is for all endpoints of a priority together; OfLocality is for those of each
	// locality, by a RandomSubsetting within a WrrLocality.
	OfPriority, OfLocality uint32
}

// randomSubsetting is gRFC A68. The size is kept apart from the policy of the subset, which
// therefore may be any that a Cluster can have. Of one subset within another the smaller size counts.
func (d clusterDecoder) randomSubsetting(at *faults.Path, pb *subsettingpb.RandomSubsetting, depth int) {
	size := pb.GetSubsetSize().GetValue()
	if size == 0 {
		d.fault(at.Field("subset_size"), "must be greater than 0")
	}
	whole := &d.c.Subsets.OfPriority
	if !d.c.AcrossLocalities {
		whole = &d.c.Subsets.OfLocality
	}
	if *whole == 0 || size < *whole {
		*whole = size
	}
	d.firstKnownPolicy(at.Field("child_policy"), pb.GetChildPolicy(), depth+1)
}
