package meshroute

import (
	"slices"
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
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

// settingsBeyondGRPC calls add for the settings that not every client obeys, with their places in a document.
func (s *Service) settingsBeyondGRPC(add func(path string, f *dialect.Feature)) {
	c := s.Cluster
	policiesBeyondGRPC(c.GetLoadBalancingPolicy(), func(f *dialect.Feature) { add("loadBalancing", f) })
	budget := false
	for _, t := range c.GetCircuitBreakers().GetThresholds() {
		budget = budget || t.GetMaxRetries() != nil || t.GetRetryBudget() != nil
	}
	o := c.GetOutlierDetection()
	for _, setting := range []struct {
		set     bool
		path    string
		feature *dialect.Feature
	}{
		{c.GetRoundRobinLbConfig().GetSlowStartConfig() != nil || c.GetLeastRequestLbConfig().GetSlowStartConfig() != nil, "loadBalancing", dialect.SlowStart},
		{c.GetLbPolicy() == clusterpb.Cluster_MAGLEV || c.GetLbPolicy() == clusterpb.Cluster_RANDOM, "loadBalancing", dialect.OtherPolicies},
		{o.GetConsecutive_5Xx() != nil || o.GetConsecutiveGatewayFailure() != nil || o.GetConsecutiveLocalOriginFailure() != nil || o.GetMaxEjectionTimeJitter() != nil,
			"outlierDetection", dialect.Consecutive},
		{budget, "circuitBreakers", dialect.RetryLimits},
		{len(c.GetHealthChecks()) > 0, "healthCheck", dialect.Health},
		{c.GetLrsServer() != nil, "loadReporting", dialect.LoadReports},
	} {
		if setting.set {
			add(setting.path, setting.feature)
		}
	}
	retryBeyondGRPC(s.Route.GetRetryPolicy(), func(f *dialect.Feature) { add("retry", f) })
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

// statusesOfA44 are the conditions of retries that every gRPC client with xDS knows.
const statusesOfA44 = ",cancelled,deadline-exceeded,internal,resource-exhausted,unavailable,"

// retryBeyondGRPC is about what a retry policy has beyond gRFC A44.
func retryBeyondGRPC(p *routepb.RetryPolicy, add func(*dialect.Feature)) {
	for on := range strings.SplitSeq(p.GetRetryOn(), ",") {
		if on != "" && !strings.Contains(statusesOfA44, ","+on+",") {
			add(dialect.RetryConditions)
			break
		}
	}
	if p.GetPerTryTimeout() != nil || p.GetPerTryIdleTimeout() != nil {
		add(dialect.TryTimeouts)
	}
	if len(p.GetRetryHostPredicate()) > 0 {
		add(dialect.RetryHosts)
	}
}
