package folder

import (
	"cmp"
	"strings"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previouspb "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/meshroute"
	"github.com/dynxds/dynxds/xdsclient"
)

// settingFields are the fields of a Service document about its Clusters and the routes to it.
var settingFields = []string{
	"loadBalancing", "localities", "outlierDetection", "circuitBreakers", "healthCheck", "sessionAffinity", "loadReporting", "retry", "timeout",
}

// readSettings reads the settings:
//
//	loadBalancing: {policy: RingHash, hashOn: [{header: user}]}
//	localities: [{zone: a, weight: 3}]
//	outlierDetection: {consecutive_5xx: 5}
//	circuitBreakers: {maxRequests: 100, retryBudget: {percent: 20}}
//	healthCheck: {service: shop.Cart, interval: 5s}
//	sessionAffinity: {cookie: {name: session}}
//	loadReporting: true
//	retry: {on: [unavailable], attempts: 2}
//	timeout: 5s
func readSettings(o document.Object, s *meshroute.Service) {
	cluster, route := &clusterpb.Cluster{}, &routepb.RouteAction{}
	readLoadBalancing(o.Field("loadBalancing"), cluster, route)
	if outliers := o.Field("outlierDetection"); outliers.Present() {
		cluster.OutlierDetection = &clusterpb.OutlierDetection{}
		readMessage(outliers, cluster.OutlierDetection)
	}
	cluster.CircuitBreakers = readCircuitBreakers(o.Field("circuitBreakers"))
	if check := o.Field("healthCheck"); check.Present() {
		cluster.HealthChecks = []*corepb.HealthCheck{readHealthCheck(check)}
	}
	if o.Field("loadReporting").Bool() {
		cluster.LrsServer = &corepb.ConfigSource{ConfigSourceSpecifier: &corepb.ConfigSource_Self{Self: &corepb.SelfConfigSource{}}}
	}
	readLocalities(o.Field("localities"), s, cluster)
	readSessionAffinity(o.Field("sessionAffinity"), s, cluster)
	if retry := o.Field("retry"); retry.Present() {
		route.RetryPolicy = readRetry(retry)
	}
	if timeout := o.Field("timeout"); timeout.Present() {
		route.MaxStreamDuration = &routepb.RouteAction_MaxStreamDuration{MaxStreamDuration: readDuration(timeout)}
	}
	if proto.Size(cluster) > 0 || o.Field("loadBalancing").Present() {
		s.Cluster = cluster
		checkCluster(o, cluster)
	}
	if proto.Size(route) > 0 {
		s.Route = route
	}
}

// places are the fields of a document by what is made of them in a Cluster.
var places = []struct{ field, cluster string }{
	{"outlierDetection", "outlier_detection"}, {"circuitBreakers", "circuit_breakers"}, {"healthCheck", "health_checks"},
	{"sessionAffinity", "common_lb_config"}, {"loadBalancing", "load_balancing_policy"}, {"loadBalancing", ""},
}

// checkCluster reports settings that a client would reject, by decoding a Cluster as a client does.
func checkCluster(o document.Object, settings *clusterpb.Cluster) {
	whole := &clusterpb.Cluster{
		Name: "c", ClusterDiscoveryType: &clusterpb.Cluster_Type{Type: clusterpb.Cluster_EDS},
		EdsClusterConfig: &clusterpb.Cluster_EdsClusterConfig{EdsConfig: &corepb.ConfigSource{ConfigSourceSpecifier: &corepb.ConfigSource_Ads{}}},
	}
	proto.Merge(whole, settings)
	_, err := xdsresource.ClusterType.Decode(extension(whole).GetTypedConfig(), xdsclient.DecodeOptions{})
	if err == nil {
		return
	}
	for _, p := range places {
		if field := o.Field(p.field); field.Present() && strings.Contains(err.Error(), p.cluster) {
			field.Fault("", "clients would reject it: %v", err)
			return
		}
	}
}

func readCircuitBreakers(v document.Value) *clusterpb.CircuitBreakers {
	if !v.Present() {
		return nil
	}
	o := v.Object("maxRequests", "maxRetries", "retryBudget")
	limits := &clusterpb.CircuitBreakers_Thresholds{MaxRequests: readUint32(o.Field("maxRequests"), 0), MaxRetries: readUint32(o.Field("maxRetries"), 0)}
	if budget := o.Field("retryBudget"); budget.Present() {
		b := budget.Object("percent", "minConcurrency")
		limits.RetryBudget = &clusterpb.CircuitBreakers_Thresholds_RetryBudget{MinRetryConcurrency: readUint32(b.Field("minConcurrency"), 0)}
		if percent := b.Field("percent"); percent.Present() {
			limits.RetryBudget.BudgetPercent = &typepb.Percent{Value: percent.Number(0, 100)}
		}
		o.Field("maxRetries").Fault("keep one of the two", "a retryBudget replaces maxRetries")
	}
	if o.IsObject() && len(o.Names()) == 0 {
		o.Fault("add maxRequests, maxRetries or retryBudget", "there is no limit")
	}
	return &clusterpb.CircuitBreakers{Thresholds: []*clusterpb.CircuitBreakers_Thresholds{limits}}
}

// readHealthCheck reads a health check by gRPC's protocol. Envoy needs all fields, so each has a default.
func readHealthCheck(v document.Value) *corepb.HealthCheck {
	o := v.Object("service", "interval", "timeout", "healthyThreshold", "unhealthyThreshold")
	return &corepb.HealthCheck{
		Interval:           cmp.Or(readDuration(o.Field("interval")), durationpb.New(10*time.Second)),
		Timeout:            cmp.Or(readDuration(o.Field("timeout")), durationpb.New(time.Second)),
		HealthyThreshold:   cmp.Or(readUint32(o.Field("healthyThreshold"), 1), wrapperspb.UInt32(1)),
		UnhealthyThreshold: cmp.Or(readUint32(o.Field("unhealthyThreshold"), 1), wrapperspb.UInt32(3)),
		HealthChecker:      &corepb.HealthCheck_GrpcHealthCheck_{GrpcHealthCheck: &corepb.HealthCheck_GrpcHealthCheck{ServiceName: o.Field("service").Text()}},
	}
}

// readLocalities reads the weights of localities, which Envoy ignores without a locality_weighted_lb_config.
func readLocalities(v document.Value, s *meshroute.Service, cluster *clusterpb.Cluster) {
	if !v.Present() {
		return
	}
	s.LocalityWeights = make(map[meshroute.Locality]uint32)
	for _, item := range v.Items() {
		o := item.Object("region", "zone", "subZone", "weight")
		at := localityOf(o)
		if _, twice := s.LocalityWeights[at]; twice {
			item.Fault("keep one of the two", "the locality has a weight already")
		}
		s.LocalityWeights[at] = uint32(o.Require("weight").Uint(1, maxWeight))
	}
	commonOf(cluster).LocalityConfigSpecifier = &clusterpb.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
		LocalityWeightedLbConfig: &clusterpb.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
	}
}

func commonOf(cluster *clusterpb.Cluster) *clusterpb.Cluster_CommonLbConfig {
	if cluster.CommonLbConfig == nil {
		cluster.CommonLbConfig = &clusterpb.Cluster_CommonLbConfig{}
	}
	return cluster.CommonLbConfig
}

// readRetry reads a retry policy (gRFC A44, and what Envoy has beyond it).
func readRetry(v document.Value) *routepb.RetryPolicy {
	o := v.Object("on", "attempts", "backoff", "perTryTimeout", "perTryIdleTimeout", "hostSelectionAttempts")
	p := &routepb.RetryPolicy{
		NumRetries: readUint32(o.Field("attempts"), 1), PerTryTimeout: readDuration(o.Field("perTryTimeout")), PerTryIdleTimeout: readDuration(o.Field("perTryIdleTimeout")),
	}
	var on []string
	field := o.Field("on")
	if p.PerTryTimeout == nil && p.PerTryIdleTimeout == nil {
		field = o.Require("on")
	}
	for _, item := range field.Items() {
		on = append(on, item.OneOf("cancelled", "deadline-exceeded", "internal", "resource-exhausted", "unavailable",
			"reset", "connect-failure", "gateway-error", "5xx"))
	}
	if field.IsList() && len(on) == 0 {
		field.Fault("", "no status is retried")
	}
	p.RetryOn = strings.Join(on, ",")
	if n := o.Field("hostSelectionAttempts"); n.Present() {
		p.HostSelectionRetryMaxAttempts = int64(n.Uint(1, 100))
		predicate := extension(&previouspb.PreviousHostsPredicate{})
		p.RetryHostPredicate = []*routepb.RetryPolicy_RetryHostPredicate{{
			Name: predicate.Name, ConfigType: &routepb.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: predicate.TypedConfig},
		}}
	}
	if backoff := o.Field("backoff"); backoff.Present() {
		b := backoff.Object("base", "max")
		base, longest := readDuration(b.Require("base")), readDuration(b.Field("max"))
		if longest != nil && longest.AsDuration() < base.AsDuration() {
			b.Field("max").Fault("", "max is shorter than base")
		}
		p.RetryBackOff = &routepb.RetryPolicy_RetryBackOff{BaseInterval: base, MaxInterval: longest}
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
		v.Fault("write it like 1.5s or 250ms", "%q is not a duration above 0", v.Text())
	}
	return durationpb.New(d)
}
