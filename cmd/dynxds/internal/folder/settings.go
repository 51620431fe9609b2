package folder

import (
	"strings"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/document"
	"github.com/dynxds/dynxds/meshroute"
)

// settingFields are the fields of a Service document about its Clusters and the routes to it.
var settingFields = []string{"loadBalancing", "outlierDetection", "circuitBreakers", "retry", "timeout"}

// readSettings reads the settings:
//
//	loadBalancing: {policy: RingHash, hashOn: [{header: user}]}
//	outlierDetection: {consecutive_5xx: 5}
//	circuitBreakers: {maxRequests: 100}
//	retry: {on: [unavailable], attempts: 2}
//	timeout: 5s
func readSettings(o document.Object, s *meshroute.Service) {
	var cluster clusterpb.Cluster
	var route routepb.RouteAction
	readLoadBalancing(o.Field("loadBalancing"), &cluster, &route)
	if outliers := o.Field("outlierDetection"); outliers.Present() {
		cluster.OutlierDetection = &clusterpb.OutlierDetection{}
		readMessage(outliers, cluster.OutlierDetection)
	}
	if breakers := o.Field("circuitBreakers"); breakers.Present() {
		limit := breakers.Object("maxRequests").Require("maxRequests").Uint(0, 1<<32-1)
		cluster.CircuitBreakers = &clusterpb.CircuitBreakers{Thresholds: []*clusterpb.CircuitBreakers_Thresholds{{MaxRequests: wrapperspb.UInt32(uint32(limit))}}}
	}
	if retry := o.Field("retry"); retry.Present() {
		route.RetryPolicy = readRetry(retry)
	}
	if timeout := o.Field("timeout"); timeout.Present() {
		route.MaxStreamDuration = &routepb.RouteAction_MaxStreamDuration{MaxStreamDuration: readDuration(timeout)}
	}
	for _, name := range settingFields[:3] {
		if o.Field(name).Present() {
			s.Cluster = &cluster
		}
	}
	if route.HashPolicy != nil || route.RetryPolicy != nil || route.MaxStreamDuration != nil {
		s.Route = &route
	}
}

// policies are those that every gRPC client with xDS may have; each is announced by its name in lb_policy.
var policies = map[string]clusterpb.Cluster_LbPolicy{
	"RoundRobin": clusterpb.Cluster_ROUND_ROBIN, "LeastRequest": clusterpb.Cluster_LEAST_REQUEST, "RingHash": clusterpb.Cluster_RING_HASH,
}

// maxRing is the limit of ring_hash_lb_config (gRFC A42).
const maxRing = 8 << 20

func readLoadBalancing(v document.Value, cluster *clusterpb.Cluster, route *routepb.RouteAction) {
	if !v.Present() {
		return
	}
	o := v.Object("policy", "choiceCount", "minRingSize", "maxRingSize", "hashOn")
	policy := o.Require("policy").OneOf("RoundRobin", "LeastRequest", "RingHash")
	cluster.LbPolicy = policies[policy]
	of := map[string]string{"choiceCount": "LeastRequest", "minRingSize": "RingHash", "maxRingSize": "RingHash", "hashOn": "RingHash"}
	for _, name := range o.Names() {
		if needs := of[name]; policy != "" && needs != "" && needs != policy {
			o.Field(name).Fault("leave it out", "this is for the policy %s", needs)
		}
	}
	if n := o.Field("choiceCount"); n.Present() {
		cluster.LbConfig = &clusterpb.Cluster_LeastRequestLbConfig_{LeastRequestLbConfig: &clusterpb.Cluster_LeastRequestLbConfig{
			ChoiceCount: wrapperspb.UInt32(uint32(n.Uint(2, 1<<32-1))),
		}}
	}
	if low, high := o.Field("minRingSize"), o.Field("maxRingSize"); low.Present() || high.Present() {
		ring := &clusterpb.Cluster_RingHashLbConfig{}
		if low.Present() {
			ring.MinimumRingSize = wrapperspb.UInt64(low.Uint(1, maxRing))
		}
		if high.Present() {
			ring.MaximumRingSize = wrapperspb.UInt64(high.Uint(1, maxRing))
		}
		if low.Present() && high.Present() && ring.GetMinimumRingSize().GetValue() > ring.GetMaximumRingSize().GetValue() {
			high.Fault("", "the largest ring is smaller than the smallest")
		}
		cluster.LbConfig = &clusterpb.Cluster_RingHashLbConfig_{RingHashLbConfig: ring}
	}
	for _, item := range o.Field("hashOn").Items() {
		route.HashPolicy = append(route.HashPolicy, readHashPolicy(item))
	}
}

// readHashPolicy reads {header: NAME} or {channel: true}.
func readHashPolicy(v document.Value) *routepb.RouteAction_HashPolicy {
	o := v.Object("header", "channel")
	header, channel := o.Field("header"), o.Field("channel")
	if header.Present() == channel.Present() && o.IsObject() || channel.Present() && !channel.Bool() {
		o.Fault("write {header: NAME} or {channel: true}", "this is not what requests can be hashed by")
	}
	if header.Present() {
		name, _ := header.NonEmptyText("the name of a header")
		return &routepb.RouteAction_HashPolicy{PolicySpecifier: &routepb.RouteAction_HashPolicy_Header_{
			Header: &routepb.RouteAction_HashPolicy_Header{HeaderName: strings.ToLower(name)},
		}}
	}
	return &routepb.RouteAction_HashPolicy{PolicySpecifier: &routepb.RouteAction_HashPolicy_FilterState_{
		FilterState: &routepb.RouteAction_HashPolicy_FilterState{Key: "io.grpc.channel_id"},
	}}
}

// readRetry reads a retry policy (gRFC A44).
func readRetry(v document.Value) *routepb.RetryPolicy {
	o := v.Object("on", "attempts", "backoff")
	var on []string
	for _, item := range o.Require("on").Items() {
		on = append(on, item.OneOf("cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable"))
	}
	if on := o.Field("on"); on.IsList() && len(on.Items()) == 0 {
		on.Fault("", "RPCs are retried for no status")
	}
	p := &routepb.RetryPolicy{RetryOn: strings.Join(on, ",")}
	if n := o.Field("attempts"); n.Present() {
		p.NumRetries = wrapperspb.UInt32(uint32(n.Uint(1, 1<<32-1)))
	}
	if backoff := o.Field("backoff"); backoff.Present() {
		b := backoff.Object("base", "max")
		p.RetryBackOff = &routepb.RetryPolicy_RetryBackOff{BaseInterval: readDuration(b.Require("base"))}
		if longest := b.Field("max"); longest.Present() {
			p.RetryBackOff.MaxInterval = readDuration(longest)
			if p.RetryBackOff.GetMaxInterval().AsDuration() < p.RetryBackOff.GetBaseInterval().AsDuration() {
				longest.Fault("", "max is shorter than base")
			}
		}
	}
	return p
}

// readDuration reads a positive duration, such as 1.5s or 250ms.
func readDuration(v document.Value) *durationpb.Duration {
	if !v.Present() {
		return nil
	}
	d, err := time.ParseDuration(v.Text())
	if v.IsText() && (err != nil || d <= 0) {
		v.Fault("write it like 1.5s or 250ms", "%q is no duration above 0", v.Text())
	}
	return durationpb.New(d)
}
