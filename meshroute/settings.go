package meshroute

import (
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	leastrequestpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	maglevpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	randompb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random/v3"
	subsettingpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/random_subsetting/v3"
	roundrobinpb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrlocalitypb "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
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

// settingsBeyondGRPC calls add for the settings that not every client obeys, with their places in a document.
func (s *Service) settingsBeyondGRPC(add func(path string, f *dialect.Feature)) {
	c := s.Cluster
	if len(c.GetLoadBalancingPolicy().GetPolicies()) > 0 {
		policiesBeyondGRPC(c.GetLoadBalancingPolicy(), func(f *dialect.Feature) { add("loadBalancing", f) })
	}
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

// policiesBeyondGRPC is about the policy that clients of dynxds use, the first one.
func policiesBeyondGRPC(list *clusterpb.LoadBalancingPolicy, add func(*dialect.Feature)) {
	m, err := list.GetPolicies()[0].GetTypedExtensionConfig().GetTypedConfig().UnmarshalNew()
	if err != nil {
		return // a type that is not known is for the program's own policies
	}
	below := func(l *clusterpb.LoadBalancingPolicy) {
		if len(l.GetPolicies()) > 0 {
			policiesBeyondGRPC(l, add)
		}
	}
	switch p := m.(type) {
	case *maglevpb.Maglev:
		add(dialect.Maglev)
	case *randompb.Random:
		add(dialect.Random)
	case *subsettingpb.RandomSubsetting:
		add(dialect.Subsets)
		below(p.GetChildPolicy())
	case *wrrlocalitypb.WrrLocality:
		below(p.GetEndpointPickingPolicy())
	case *roundrobinpb.RoundRobin:
		if p.GetSlowStartConfig() != nil {
			add(dialect.SlowStart)
		}
	case *leastrequestpb.LeastRequest:
		if p.GetSlowStartConfig() != nil {
			add(dialect.SlowStart)
		}
	}
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
