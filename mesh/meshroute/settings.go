package meshroute

import (
	"slices"
	"strings"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/dynxds/dynxds/internal/dialect"
)

// settings are the fields that Cluster and Route of a Service may have, and the fields of a document that these are made of.
var settings = map[protoreflect.FullName]string{
	"envoy.config.cluster.v3.Cluster.lb_policy":               "loadBalancing",
	"envoy.config.cluster.v3.Cluster.ring_hash_lb_config":     "loadBalancing",
	"envoy.config.cluster.v3.Cluster.round_robin_lb_config":   "loadBalancing",
	"envoy.config.cluster.v3.Cluster.least_request_lb_config": "loadBalancing",
	"envoy.config.cluster.v3.Cluster.load_balancing_policy":   "loadBalancing",
	"envoy.config.cluster.v3.Cluster.common_lb_config":        "localities",
	"envoy.config.cluster.v3.Cluster.outlier_detection":       "outlierDetection",
	"envoy.config.cluster.v3.Cluster.circuit_breakers":        "circuitBreakers",
	"envoy.config.cluster.v3.Cluster.health_checks":           "healthCheck",
	"envoy.config.cluster.v3.Cluster.lrs_server":              "loadReporting",
	"envoy.config.route.v3.RouteAction.hash_policy":           "loadBalancing",
	"envoy.config.route.v3.RouteAction.retry_policy":          "retry",
	"envoy.config.route.v3.RouteAction.max_stream_duration":   "timeout",
}

// beyondSettings returns a field of Cluster or Route that is not a setting, or "".
func (s *Service) beyondSettings() (extra protoreflect.FullName) {
	find := func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if settings[field.FullName()] == "" {
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

// featureOf has the fields of settings, at any depth, that not every client obeys. Others do not have these names.
var featureOf = map[protoreflect.Name]*dialect.Feature{
	dialect.SlowStartField:             dialect.SlowStart,
	"consecutive_5xx":                  dialect.Consecutive,
	"consecutive_gateway_failure":      dialect.Consecutive,
	"consecutive_local_origin_failure": dialect.Consecutive,
	"max_ejection_time_jitter":         dialect.Consecutive,
	"max_retries":                      dialect.RetryLimits,
	"retry_budget":                     dialect.RetryLimits,
	"health_checks":                    dialect.Health,
	"lrs_server":                       dialect.LoadReports,
	"per_try_timeout":                  dialect.TryTimeouts,
	"per_try_idle_timeout":             dialect.TryTimeouts,
	"retry_host_predicate":             dialect.RetryHosts,
}

// statusesOfA44 are the conditions of retries that every gRPC client with xDS knows.
const statusesOfA44 = ",cancelled,deadline-exceeded,internal,resource-exhausted,unavailable,"

// settingsBeyondGRPC calls add for the settings that not every client obeys, with their places in a document. Of a list of policies,
// clients of dynxds use the first one.
func (s *Service) settingsBeyondGRPC(add func(path string, f *dialect.Feature)) {
	if p := s.Cluster.GetLbPolicy(); p == clusterpb.Cluster_MAGLEV || p == clusterpb.Cluster_RANDOM {
		add("loadBalancing", dialect.OtherPolicies)
	}
	for on := range strings.SplitSeq(s.Route.GetRetryPolicy().GetRetryOn(), ",") {
		if on != "" && !strings.Contains(statusesOfA44, ","+on+",") {
			add("retry", dialect.RetryConditions)
		}
	}
	visit := func(at protopath.Values) error {
		var feature *dialect.Feature
		switch last := at.Index(-1).Step; last.Kind() {
		case protopath.FieldAccessStep:
			feature = featureOf[last.FieldDescriptor().Name()]
		case protopath.AnyExpandStep:
			feature = dialect.Policy(string(last.MessageDescriptor().FullName()))
		case protopath.ListIndexStep:
			if last.ListIndex() > 0 && at.Index(-2).Step.FieldDescriptor().FullName() == "envoy.config.cluster.v3.LoadBalancingPolicy.policies" {
				return protorange.Break
			}
		}
		if feature != nil && feature != dialect.LeastRequest {
			add(settings[at.Index(1).Step.FieldDescriptor().FullName()], feature)
		}
		return nil
	}
	_ = protorange.Range(s.Cluster.ProtoReflect(), visit) // which fails only in a policy that is no message
	_ = protorange.Range(s.Route.ProtoReflect(), visit)
}
