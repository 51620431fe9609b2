package folder

import (
	"slices"
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	clientwrrpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	commonpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	leastrequestpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	maglevpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	randompb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	subsettingpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random_subsetting/v3"
	ringhashpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	roundrobinpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrlocalitypb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
)

const (
	roundRobin         = "RoundRobin"
	leastRequest       = "LeastRequest"
	ringHash           = "RingHash"
	maglev             = "Maglev"
	random             = "Random"
	weightedRoundRobin = "WeightedRoundRobin"
)

// optionsOf are the policies that have an option; others have all.
var optionsOf = map[string][]string{
	"choiceCount": {leastRequest}, "minRingSize": {ringHash}, "maxRingSize": {ringHash}, "tableSize": {maglev},
	"hashOn": {ringHash, maglev}, "slowStart": {roundRobin, leastRequest},
}

// maxRing is the limit of ring_hash_lb_config (gRFC A42), maxTable that of Maglev tables.
const maxRing, maxTable = 8 << 20, 5000011

// balancing is what loadBalancing says.
type balancing struct {
	policy                  string
	choices, subset         *wrapperspb.UInt32Value
	ringMin, ringMax, table *wrapperspb.UInt64Value
	slow                    *clusterpb.Cluster_SlowStartConfig
}

func readLoadBalancing(v document.Value, cluster *clusterpb.Cluster, route *routepb.RouteAction) {
	if !v.Present() {
		return
	}
	o := v.Object("policy", "choiceCount", "minRingSize", "maxRingSize", "tableSize", "hashOn", "slowStart", "subsetSize")
	b := balancing{policy: o.Require("policy").OneOf(roundRobin, leastRequest, ringHash, maglev, random, weightedRoundRobin)}
	for _, name := range o.Names() {
		if of := optionsOf[name]; b.policy != "" && of != nil && !slices.Contains(of, b.policy) {
			o.Field(name).Fault("leave it out", "this is for the policy %s", strings.Join(of, " or "))
		}
	}
	b.choices, b.subset = readUint32(o.Field("choiceCount"), 2), readUint32(o.Field("subsetSize"), 1)
	b.ringMin, b.ringMax, b.table = readUint64(o.Field("minRingSize"), 1, maxRing), readUint64(o.Field("maxRingSize"), 1, maxRing), readUint64(o.Field("tableSize"), 2, maxTable)
	if b.ringMin != nil && b.ringMax != nil && b.ringMin.Value > b.ringMax.Value {
		o.Field("maxRingSize").Fault("", "the largest ring is smaller than the smallest")
	}
	b.slow = readSlowStart(o.Field("slowStart"))
	for _, item := range o.Field("hashOn").Items() {
		route.HashPolicy = append(route.HashPolicy, readHashPolicy(item))
	}
	b.write(cluster)
}

// write sets the policy: by lb_policy if every gRPC client with xDS has it, else by load_balancing_policy (gRFC A52), with
// what clients without it use instead.
func (b *balancing) write(cluster *clusterpb.Cluster) {
	if b.subset != nil {
		cluster.LoadBalancingPolicy = b.subsetting()
		return
	}
	switch b.policy {
	case roundRobin:
		if b.slow != nil {
			cluster.LbConfig = &clusterpb.Cluster_RoundRobinLbConfig_{RoundRobinLbConfig: &clusterpb.Cluster_RoundRobinLbConfig{SlowStartConfig: b.slow}}
		}
	case leastRequest:
		cluster.LbPolicy = clusterpb.Cluster_LEAST_REQUEST
		if b.choices != nil || b.slow != nil {
			cluster.LbConfig = &clusterpb.Cluster_LeastRequestLbConfig_{LeastRequestLbConfig: &clusterpb.Cluster_LeastRequestLbConfig{
				ChoiceCount: b.choices, SlowStartConfig: b.slow,
			}}
		}
	case ringHash:
		cluster.LbPolicy = clusterpb.Cluster_RING_HASH
		if b.ringMin != nil || b.ringMax != nil {
			cluster.LbConfig = &clusterpb.Cluster_RingHashLbConfig_{RingHashLbConfig: &clusterpb.Cluster_RingHashLbConfig{
				MinimumRingSize: b.ringMin, MaximumRingSize: b.ringMax,
			}}
		}
	default:
		cluster.LoadBalancingPolicy = policyList(b.extensions()...)
	}
}

// xxHash must be said: gRPC-Go rejects the default.
const xxHash = ringhashpb.RingHash_XX_HASH

// extensions returns the policy, and after it what clients use that do not have it.
func (b *balancing) extensions() []proto.Message {
	var slow *commonpb.SlowStartConfig
	if b.slow != nil {
		slow = &commonpb.SlowStartConfig{SlowStartWindow: b.slow.SlowStartWindow, Aggression: b.slow.Aggression, MinWeightPercent: b.slow.MinWeightPercent}
	}
	switch b.policy {
	case leastRequest:
		return []proto.Message{perLocality(&leastrequestpb.LeastRequest{ChoiceCount: b.choices, SlowStartConfig: slow})}
	case ringHash:
		return []proto.Message{&ringhashpb.RingHash{HashFunction: xxHash, MinimumRingSize: b.ringMin, MaximumRingSize: b.ringMax}}
	case maglev:
		return []proto.Message{&maglevpb.Maglev{TableSize: b.table}, &ringhashpb.RingHash{HashFunction: xxHash}}
	case random:
		return []proto.Message{&randompb.Random{}, perLocality(&roundrobinpb.RoundRobin{})}
	case weightedRoundRobin:
		return []proto.Message{perLocality(&clientwrrpb.ClientSideWeightedRoundRobin{}, &roundrobinpb.RoundRobin{})}
	default:
		return []proto.Message{perLocality(&roundrobinpb.RoundRobin{SlowStartConfig: slow})}
	}
}

// subsetting returns a subset of the endpoints for the policy (gRFC A68), and all of them for clients that do
// not have it. Envoy rejects a WrrLocality around most policies, and uses Random instead.
func (b *balancing) subsetting() *clusterpb.LoadBalancingPolicy {
	all := b.extensions()
	list := append([]proto.Message{&subsettingpb.RandomSubsetting{SubsetSize: b.subset, ChildPolicy: policyList(all...)}}, all...)
	if b.policy == roundRobin || b.policy == leastRequest {
		list = slices.Insert(list, 1, proto.Message(&randompb.Random{}))
	}
	return policyList(list...)
}

// perLocality distributes RPCs among localities by their weights, and then by the first known policy.
func perLocality(policies ...proto.Message) proto.Message {
	return &wrrlocalitypb.WrrLocality{EndpointPickingPolicy: policyList(policies...)}
}

func policyList(policies ...proto.Message) *clusterpb.LoadBalancingPolicy {
	list := &clusterpb.LoadBalancingPolicy{}
	for _, p := range policies {
		list.Policies = append(list.Policies, &clusterpb.LoadBalancingPolicy_Policy{TypedExtensionConfig: extension(p)})
	}
	return list
}

// extension packs a message under its name.
func extension(m proto.Message) *corepb.TypedExtensionConfig {
	packed, err := anypb.New(m)
	if err != nil {
		panic(err) // impossible: the messages have no text that is not UTF-8
	}
	return &corepb.TypedExtensionConfig{Name: string(m.ProtoReflect().Descriptor().FullName()), TypedConfig: packed}
}

// readSlowStart reads how endpoints start (Envoy).
func readSlowStart(v document.Value) *clusterpb.Cluster_SlowStartConfig {
	if !v.Present() {
		return nil
	}
	o := v.Object("window", "aggression", "minWeightPercent")
	slow := &clusterpb.Cluster_SlowStartConfig{SlowStartWindow: readDuration(o.Require("window"))}
	if a := o.Field("aggression"); a.Present() {
		slow.Aggression = &corepb.RuntimeDouble{DefaultValue: a.Number(0.01, 100), RuntimeKey: "dynxds.slow_start.aggression"}
	}
	if p := o.Field("minWeightPercent"); p.Present() {
		slow.MinWeightPercent = &typepb.Percent{Value: p.Number(0, 100)}
	}
	return slow
}

// readUint32 reads a number from low on, nil if it is absent.
func readUint32(v document.Value, low uint64) *wrapperspb.UInt32Value {
	if !v.Present() {
		return nil
	}
	return wrapperspb.UInt32(uint32(v.Uint(low, 1<<32-1)))
}

func readUint64(v document.Value, low, high uint64) *wrapperspb.UInt64Value {
	if !v.Present() {
		return nil
	}
	return wrapperspb.UInt64(v.Uint(low, high))
}

// readHashPolicy reads {header: NAME} or {channel: true}.
func readHashPolicy(v document.Value) *routepb.RouteAction_HashPolicy {
	o := v.Object("header", "channel")
	header, channel := o.Field("header"), o.Field("channel")
	if header.Present() == channel.Present() && o.IsObject() || channel.Present() && !channel.Bool() {
		o.Fault("write {header: NAME} or {channel: true}", "requests cannot be hashed by this")
	}
	if header.Present() {
		return &routepb.RouteAction_HashPolicy{PolicySpecifier: &routepb.RouteAction_HashPolicy_Header_{
			Header: &routepb.RouteAction_HashPolicy_Header{HeaderName: meshpolicy.ReadHeaderName(header)},
		}}
	}
	return &routepb.RouteAction_HashPolicy{PolicySpecifier: &routepb.RouteAction_HashPolicy_FilterState_{
		FilterState: &routepb.RouteAction_HashPolicy_FilterState{Key: "io.grpc.channel_id"},
	}}
}
