package meshroute

import (
	"slices"
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/dynxds/dynxds/internal/dialect"
)

// settings are the fields that Cluster and Route of a Service may have.
var settings = map[protoreflect.FullName]bool{
	"envoy.config.cluster.v3.Cluster.lb_policy":               true,
	"envoy.config.cluster.v3.Cluster.ring_hash_lb_config":     true,
	"envoy.config.cluster.v3.Cluster.round_robin_lb_config":   true,
	"envoy.config.cluster.v3.Cluster.least_request_lb_config": true,
	"envoy.config.cluster.v3.Cluster.load_balancing_policy":   true,
	"envoy.config.cluster.v3.Cluster.common_lb_config":        true,
	"envoy.config.cluster.v3.Cluster.outlier_detection":       true,
	"envoy.config.cluster.v3.Cluster.circuit_breakers":        true,
	"envoy.config.cluster.v3.Cluster.health_checks":           true,
	"envoy.config.cluster.v3.Cluster.lrs_server":              true,
	"envoy.config.route.v3.RouteAction.hash_policy":           true,
	"envoy.config.route.v3.RouteAction.retry_policy":          true,
	"envoy.config.route.v3.RouteAction.max_stream_duration":   true,
}

// beyondSettings returns a field of Cluster or Route that is not a setting, or "".
func (s *Service) beyondSettings() (extra protoreflect.FullName) {
	find := func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !settings[field.FullName()] {
			extra = field.FullName()
		}
		return extra == ""
	}
	s.Cluster.ProtoReflect().Range(find)
	s.Route.ProtoReflect().Range(find)
	return extra
}

// hashes reports whether a policy that clients may use picks from the endpoints of all localities by a hash: ring hash or Maglev.
func (s *Service) hashes() bool {
	switch s.Cluster.GetLbPolicy() {
	case clusterpb.Cluster_RING_HASH, clusterpb.Cluster_MAGLEV:
		return true
	}
	return slices.ContainsFunc(s.Cluster.GetLoadBalancingPolicy().GetPolicies(), func(p *clusterpb.LoadBalancingPolicy_Policy) bool {
		switch p.GetTypedExtensionConfig().GetTypedConfig().MessageName() {
		case "envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash", "envoy.extensions.load_balancing_policies.maglev.v3.Maglev":
			return true
		}
		return false
	})
}

// statusesOfA44 are the conditions of retries that every gRPC client with xDS knows.
const statusesOfA44 = ",cancelled,deadline-exceeded,internal,resource-exhausted,unavailable,"

// settingsBeyondGRPC calls add for the settings that not every client obeys, with their places in a document.
func (s *Service) settingsBeyondGRPC(add func(path string, f *dialect.Feature)) {
	c, o, retry := s.Cluster, s.Cluster.GetOutlierDetection(), s.Route.GetRetryPolicy()
	otherConditions := false
	for on := range strings.SplitSeq(retry.GetRetryOn(), ",") {
		otherConditions = otherConditions || on != "" && !strings.Contains(statusesOfA44, ","+on+",")
	}
	policiesBeyondGRPC(c.GetLoadBalancingPolicy(), func(f *dialect.Feature) { add("loadBalancing", f) })
	for _, setting := range []struct {
		set     bool
		path    string
		feature *dialect.Feature
	}{
		{c.GetRoundRobinLbConfig().GetSlowStartConfig() != nil || c.GetLeastRequestLbConfig().GetSlowStartConfig() != nil, "loadBalancing", dialect.SlowStart},
		{c.GetLbPolicy() == clusterpb.Cluster_MAGLEV || c.GetLbPolicy() == clusterpb.Cluster_RANDOM, "loadBalancing", dialect.OtherPolicies},
		{o.GetConsecutive_5Xx() != nil || o.GetConsecutiveGatewayFailure() != nil || o.GetConsecutiveLocalOriginFailure() != nil || o.GetMaxEjectionTimeJitter() != nil,
			"outlierDetection", dialect.Consecutive},
		{slices.ContainsFunc(c.GetCircuitBreakers().GetThresholds(), func(t *clusterpb.CircuitBreakers_Thresholds) bool {
			return t.GetMaxRetries() != nil || t.GetRetryBudget() != nil
		}), "circuitBreakers", dialect.RetryLimits},
		{len(c.GetHealthChecks()) > 0, "healthCheck", dialect.Health},
		{c.GetLrsServer() != nil, "loadReporting", dialect.LoadReports},
		{otherConditions, "retry", dialect.RetryConditions},
		{retry.GetPerTryTimeout() != nil || retry.GetPerTryIdleTimeout() != nil, "retry", dialect.TryTimeouts},
		{len(retry.GetRetryHostPredicate()) > 0, "retry", dialect.RetryHosts},
	} {
		if setting.set {
			add(setting.path, setting.feature)
		}
	}
}

// policiesBeyondGRPC is about the policy that clients of dynxds use, the first one, and those that it has in turn.
func policiesBeyondGRPC(list *clusterpb.LoadBalancingPolicy, add func(*dialect.Feature)) {
	if len(list.GetPolicies()) == 0 {
		return
	}
	policy, err := list.GetPolicies()[0].GetTypedExtensionConfig().GetTypedConfig().UnmarshalNew()
	if err != nil {
		return // a type that is not known is for the program's own policies
	}
	if f := dialect.Policy(string(policy.ProtoReflect().Descriptor().FullName())); f != nil && f != dialect.LeastRequest {
		add(f)
	}
	policy.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.Name() == dialect.SlowStartField {
			add(dialect.SlowStart)
		} else if m := field.Message(); m != nil && !field.IsList() && m.FullName() == list.ProtoReflect().Descriptor().FullName() {
			policiesBeyondGRPC(value.Message().Interface().(*clusterpb.LoadBalancingPolicy), add)
		}
		return true
	})
}
