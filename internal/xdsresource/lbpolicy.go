package xdsresource

import (
	"encoding/json"
	"fmt"
	"strings"

	udpapb "github.com/cncf/xds/go/udpa/type/v1"
	xdspb "github.com/cncf/xds/go/xds/type/v3"
	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	clientwrrpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	leastrequestpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	pickfirstpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	randompb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	ringhashpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	roundrobinpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/grpc/balancer"
	_ "google.golang.org/grpc/balancer/leastrequest" // registers least_request_experimental
	_ "google.golang.org/grpc/balancer/pickfirst"    // registers pick_first
	_ "google.golang.org/grpc/balancer/roundrobin"   // registers round_robin
	_ "google.golang.org/grpc/balancer/weightedroundrobin"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The policies that Cluster.LBPolicy names beside those registered with gRPC.
// They are dynxds's own: gRPC's policy of the first name gets the hash of an
// RPC from where only gRPC's own xDS code can put it, and of the second there
// is none.
const (
	PolicyRingHash = "ring_hash_experimental"
	PolicyRandom   = "dynxds_random"
)

const (
	policyRoundRobin   = "round_robin"
	policyLeastRequest = "least_request_experimental"
	policyPickFirst    = "pick_first"
	policyWeighted     = "weighted_round_robin"
)

const (
	lbPolicyPrefix     = "type.googleapis.com/envoy.extensions.load_balancing_policies."
	roundRobinTypeURL  = lbPolicyPrefix + "round_robin.v3.RoundRobin"
	wrrLocalityTypeURL = lbPolicyPrefix + "wrr_locality.v3.WrrLocality"
	leastReqTypeURL    = lbPolicyPrefix + "least_request.v3.LeastRequest"
	pickFirstTypeURL   = lbPolicyPrefix + "pick_first.v3.PickFirst"
	clientWRRTypeURL   = lbPolicyPrefix + "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin"
	ringHashTypeURL    = lbPolicyPrefix + "ring_hash.v3.RingHash"
	randomTypeURL      = lbPolicyPrefix + "random.v3.Random"
	udpaStructTypeURL  = "type.googleapis.com/udpa.type.v1.TypedStruct"
	xdsStructTypeURL   = "type.googleapis.com/xds.type.v3.TypedStruct"
)

// maxLBPolicyDepth bounds policies within policies (gRFC A52).
const maxLBPolicyDepth = 16

// minChoices is the least choice_count (gRFC A48).
const minChoices = 2

const knownPolicies = "this client knows RoundRobin, LeastRequest, PickFirst, ClientSideWeightedRoundRobin, " +
	"RingHash and Random, WrrLocality with these, and a TypedStruct that names a policy registered with gRPC"

// lbPolicy decodes the policy of a cluster: load_balancing_policy, or, if that
// is not set, lb_policy (gRFC A52).
func (v *validator) lbPolicy(pb *clusterpb.Cluster, c *Cluster) {
	if policy := pb.GetLoadBalancingPolicy(); policy != nil {
		c.AcrossLocalities = true
		v.firstKnownPolicy((*path)(nil).field("load_balancing_policy"), policy, 1, c)
		return
	}
	switch pb.GetLbPolicy() {
	case clusterpb.Cluster_ROUND_ROBIN:
		c.LBPolicy = policyRoundRobin
	case clusterpb.Cluster_RANDOM:
		c.LBPolicy = PolicyRandom
	case clusterpb.Cluster_LEAST_REQUEST:
		at := (*path)(nil).field("least_request_lb_config").field("choice_count")
		v.leastRequest(at, pb.GetLeastRequestLbConfig().GetChoiceCount(), c)
	case clusterpb.Cluster_RING_HASH:
		at, config := (*path)(nil).field("ring_hash_lb_config"), pb.GetRingHashLbConfig()
		c.AcrossLocalities = true
		if f := config.GetHashFunction(); f != clusterpb.Cluster_RingHashLbConfig_XX_HASH {
			v.fault(at.field("hash_function"), "must be XX_HASH, is %v", f)
		}
		v.ringHash(at, config, c)
	default:
		v.fault((*path)(nil).field("lb_policy"),
			"unknown load balancing policy %v; this client knows ROUND_ROBIN, LEAST_REQUEST, RING_HASH and RANDOM", pb.GetLbPolicy())
	}
}

// firstKnownPolicy takes the first entry of a known type. If that is at fault,
// the entries behind it do not help.
func (v *validator) firstKnownPolicy(at *path, pb *clusterpb.LoadBalancingPolicy, depth int, c *Cluster) {
	if depth > maxLBPolicyDepth {
		v.fault(at, "has more than %d policies within each other", maxLBPolicyDepth)
		return
	}
	for i, entry := range pb.GetPolicies() {
		at := at.item("policies", i).field("typed_extension_config").field("typed_config")
		if v.knownPolicy(at, entry.GetTypedExtensionConfig().GetTypedConfig(), depth, c) {
			return
		}
		v.ignore(at, "this client has no load balancing policy of type %s", quote(entry.GetTypedExtensionConfig().GetTypedConfig().GetTypeUrl()))
	}
	v.fault(at.field("policies"), "no known load balancing policy among %s; %s", policyTypes(pb), knownPolicies)
}

// knownPolicy converts one entry to the name of a policy and its configuration
// (gRFC A52, "xDS LB Policy Registry"). It is false if the type is not known.
func (v *validator) knownPolicy(at *path, config *anypb.Any, depth int, c *Cluster) bool {
	switch config.GetTypeUrl() {
	case roundRobinTypeURL:
		v.unmarshal(at, config, roundRobinTypeURL, new(roundrobinpb.RoundRobin))
		c.LBPolicy = policyRoundRobin
	case randomTypeURL:
		v.unmarshal(at, config, randomTypeURL, new(randompb.Random))
		c.LBPolicy = PolicyRandom
	case wrrLocalityTypeURL:
		wrr := new(wrrpb.WrrLocality)
		if v.unmarshal(at, config, wrrLocalityTypeURL, wrr) {
			c.AcrossLocalities = false
			v.firstKnownPolicy(at.field("endpoint_picking_policy"), wrr.GetEndpointPickingPolicy(), depth+1, c)
		}
	case leastReqTypeURL:
		pb := new(leastrequestpb.LeastRequest)
		if v.unmarshal(at, config, leastReqTypeURL, pb) {
			v.leastRequest(at.field("choice_count"), pb.GetChoiceCount(), c)
		}
	case pickFirstTypeURL:
		pb := new(pickfirstpb.PickFirst)
		if v.unmarshal(at, config, pickFirstTypeURL, pb) {
			v.setPolicy(at, c, policyPickFirst, map[string]any{"shuffleAddressList": pb.GetShuffleAddressList()})
		}
	case clientWRRTypeURL:
		pb := new(clientwrrpb.ClientSideWeightedRoundRobin)
		if v.unmarshal(at, config, clientWRRTypeURL, pb) {
			v.clientWRR(at, pb, c)
		}
	case ringHashTypeURL:
		pb := new(ringhashpb.RingHash)
		if v.unmarshal(at, config, ringHashTypeURL, pb) {
			// DEFAULT_HASH stands for the default of the proto, XX_HASH.
			if f := pb.GetHashFunction(); f != ringhashpb.RingHash_XX_HASH && f != ringhashpb.RingHash_DEFAULT_HASH {
				v.fault(at.field("hash_function"), "must be XX_HASH, is %v", f)
			}
			v.ringHash(at, pb, c)
		}
	case udpaStructTypeURL:
		pb := new(udpapb.TypedStruct)
		return !v.unmarshal(at, config, udpaStructTypeURL, pb) || v.customPolicy(at, pb, c)
	case xdsStructTypeURL:
		pb := new(xdspb.TypedStruct)
		return !v.unmarshal(at, config, xdsStructTypeURL, pb) || v.customPolicy(at, pb, c)
	default:
		return false
	}
	return true
}

// customPolicy takes the policy that a TypedStruct names, if there is one of
// that name, with the configuration as it is.
func (v *validator) customPolicy(at *path, pb interface {
	GetTypeUrl() string
	GetValue() *structpb.Struct
}, c *Cluster) bool {
	name := pb.GetTypeUrl()[strings.LastIndexByte(pb.GetTypeUrl(), '/')+1:]
	if name != PolicyRingHash && name != PolicyRandom && balancer.Get(name) == nil {
		return false
	}
	config := pb.GetValue().AsMap()
	if config == nil {
		config = map[string]any{}
	}
	v.setPolicy(at.field("value"), c, name, config)
	return true
}

// leastRequest is gRFC A48.
func (v *validator) leastRequest(at *path, choices *wrapperspb.UInt32Value, c *Cluster) {
	config := map[string]any{}
	if choices != nil {
		if choices.GetValue() < minChoices {
			v.fault(at, "must be at least %d, is %d", minChoices, choices.GetValue())
			return
		}
		config["choiceCount"] = choices.GetValue()
	}
	v.setPolicy(at, c, policyLeastRequest, config)
}

// clientWRR is gRFC A58. What is not set is left to the defaults of gRPC's
// policy.
func (v *validator) clientWRR(at *path, pb *clientwrrpb.ClientSideWeightedRoundRobin, c *Cluster) {
	config := map[string]any{}
	if oob := pb.GetEnableOobLoadReport(); oob != nil {
		config["enableOobLoadReport"] = oob.GetValue()
	}
	if penalty := pb.GetErrorUtilizationPenalty(); penalty != nil {
		if !(penalty.GetValue() >= 0) {
			v.fault(at.field("error_utilization_penalty"), "must not be negative, is %v", penalty.GetValue())
			return
		}
		config["errorUtilizationPenalty"] = penalty.GetValue()
	}
	for _, d := range []struct {
		field, key string
		value      *durationpb.Duration
	}{
		{"oob_reporting_period", "oobReportingPeriod", pb.GetOobReportingPeriod()},
		{"blackout_period", "blackoutPeriod", pb.GetBlackoutPeriod()},
		{"weight_expiration_period", "weightExpirationPeriod", pb.GetWeightExpirationPeriod()},
		{"weight_update_period", "weightUpdatePeriod", pb.GetWeightUpdatePeriod()},
	} {
		if d.value == nil {
			continue
		}
		before := len(v.faults.List)
		v.duration(at.field(d.field), d.value)
		if text, err := protojson.Marshal(d.value); err == nil && len(v.faults.List) == before {
			config[d.key] = json.RawMessage(text)
		}
	}
	v.setPolicy(at, c, policyWeighted, config)
}

// setPolicy makes name and config the policy of c if that policy takes them,
// as gRFC A52 has the configuration checked before it is used.
func (v *validator) setPolicy(at *path, c *Cluster, name string, config map[string]any) {
	text, err := json.Marshal(config)
	if err == nil {
		err = checkPolicy(name, text)
	}
	if err != nil {
		v.fault(at, "is not a configuration of load balancing policy %s: %v", quote(name), err)
		return
	}
	c.LBPolicy, c.LBConfig = name, string(text)
}

func checkPolicy(name string, config json.RawMessage) error {
	switch name {
	case PolicyRandom:
		return nil
	case PolicyRingHash:
		_, err := ParseRingHash(string(config))
		return err
	}
	builder := balancer.Get(name)
	if builder == nil {
		return fmt.Errorf("it is not registered with gRPC")
	}
	if parser, ok := builder.(balancer.ConfigParser); ok {
		_, err := parser.ParseConfig(config)
		return err
	}
	return nil
}

// policyTypes lists the types of the entries for a message.
func policyTypes(pb *clusterpb.LoadBalancingPolicy) string {
	list := "["
	for i, entry := range pb.GetPolicies() {
		if i == maxListed {
			list += " …"
			break
		}
		if i > 0 {
			list += " "
		}
		list += quote(entry.GetTypedExtensionConfig().GetTypedConfig().GetTypeUrl())
	}
	return list + "]"
}

// maxListed bounds lists of values in messages.
const maxListed = 5
