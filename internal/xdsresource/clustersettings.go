package xdsresource

import (
	"strings"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	upstreampb "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/load"
)

// RetryLimit bounds the concurrent retries to a cluster: Fixed of them, or Percent of the RPCs
// in flight, whichever is more.
type RetryLimit struct {
	// Fixed is max_retries, or retry_budget.min_retry_concurrency (default: 3).
	Fixed uint32
	// Percent is retry_budget.budget_percent (default: 20). It is 0 without a retry_budget.
	Percent float64
	// Interval is retry_budget.budget_interval: Percent is of the RPCs that started within that time.
	// 0: of those in flight.
	Interval time.Duration
	// Budget reports that there is a retry_budget, which replaces max_retries.
	Budget bool
}

// Envoy's defaults of retry_budget.
const (
	defaultRetryConcurrency = 3
	defaultBudgetPercent    = 20
)

// circuitBreakers decodes the first threshold with priority DEFAULT, the only priority that gRPC
// has (gRFC A32).
func (d clusterDecoder) circuitBreakers(pb *clusterpb.Cluster) Limits {
	var at *faults.Path
	var threshold *clusterpb.CircuitBreakers_Thresholds
	for i, t := range pb.GetCircuitBreakers().GetThresholds() {
		if t.GetPriority() == corepb.RoutingPriority_DEFAULT {
			at, threshold = faults.Field("circuit_breakers").Item("thresholds", i), t
			break
		}
	}
	return Limits{numberOr(threshold.GetMaxRequests(), DefaultMaxRequests), d.retryLimit(at, threshold)}
}

// retryLimit decodes the limit of retries. Unlike Envoy's, it has no default: gRPC has none (gRFC A44).
func (d clusterDecoder) retryLimit(at *faults.Path, pb *clusterpb.CircuitBreakers_Thresholds) *RetryLimit {
	budget := pb.GetRetryBudget()
	switch {
	case budget != nil:
	case pb.GetMaxRetries() != nil:
		return &RetryLimit{Fixed: pb.GetMaxRetries().GetValue()}
	default:
		return nil
	}
	percent := float64(defaultBudgetPercent)
	if p := budget.GetBudgetPercent(); p != nil {
		percent = d.percent(at.Field("retry_budget").Field("budget_percent"), p.GetValue())
	}
	return &RetryLimit{
		Fixed: numberOr(budget.GetMinRetryConcurrency(), defaultRetryConcurrency), Percent: percent, Budget: true,
		Interval: d.duration(at.Field("retry_budget").Field("budget_interval"), budget.GetBudgetInterval()),
	}
}

// OutlierDetection says when endpoints that fail RPCs are ejected (gRFC A50, Envoy). At least
// one of the algorithms is set.
type OutlierDetection struct {
	// Interval is the time between two evaluations of the endpoints, at least bounds.MinOutlierInterval.
	Interval time.Duration
	// BaseEjectionTime times the number of ejections is how long an endpoint is
	// ejected, but not longer than MaxEjectionTime.
	BaseEjectionTime, MaxEjectionTime time.Duration
	// MaxEjectionTimeJitter is the most that is added to the time of an ejection, at random.
	MaxEjectionTimeJitter time.Duration
	// MaxEjectionPercent is the share of ejected endpoints, in percent, at which no
	// further one is ejected.
	MaxEjectionPercent uint32
	// SuccessRate and FailurePercentage are nil if they are not in use.
	SuccessRate       *SuccessRateEjection
	FailurePercentage *FailurePercentageEjection
	// Consecutive are the ejections for consecutive failures, which are Envoy's; gRFC A50 does not have them.
	// That of LocalOrigin needs SplitLocalOriginErrors.
	Consecutive [Runs]ConsecutiveEjection
	// SplitLocalOriginErrors says that RPCs without an answer count for LocalOrigin, not for the other two.
	SplitLocalOriginErrors bool
}

// Run is a kind of consecutive failures, as Envoy tells them apart: Envoy counts a gRPC status as the HTTP status that
// corresponds to it.
type Run int

const (
	// FiveHundreds counts UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE and DATA_LOSS.
	FiveHundreds Run = iota
	// Gateway counts UNAVAILABLE (503) and DEADLINE_EXCEEDED (504).
	Gateway
	// LocalOrigin counts RPCs without any answer, whose connection was lost or whose time was over.
	LocalOrigin
	Runs
)

// ConsecutiveEjection ejects an endpoint at once when it has failed that many RPCs in a row.
type ConsecutiveEjection struct {
	// Failures is 0 if the ejection is not in use.
	Failures uint32
	// EnforcementPercentage is as in SuccessRateEjection.
	EnforcementPercentage uint32
}

// SuccessRateEjection ejects endpoints whose share of successful RPCs is far
// below the mean.
type SuccessRateEjection struct {
	// StdevFactor / 1000 is how many standard deviations below the mean the success
	// rate of an endpoint must be for it to be ejected.
	StdevFactor uint32
	// EnforcementPercentage is the chance of an ejection, in percent.
	EnforcementPercentage uint32
	// MinimumHosts is how many endpoints need RequestVolume RPCs in an interval
	// for any to be ejected.
	MinimumHosts, RequestVolume uint32
}

// FailurePercentageEjection ejects endpoints that fail more than a share of
// their RPCs.
type FailurePercentageEjection struct {
	// Threshold is the share, in percent.
	Threshold uint32
	// The others are as in SuccessRateEjection.
	EnforcementPercentage, MinimumHosts, RequestVolume uint32
}

// outlierDetection decodes outlier_detection (gRFC A50, "xDS Integration"). It
// returns nil if that is not set or has no algorithm in use that gRPC knows.
func (d clusterDecoder) outlierDetection(at *faults.Path, pb *clusterpb.OutlierDetection) *OutlierDetection {
	if pb == nil {
		return nil
	}
	o := &OutlierDetection{
		Interval:           d.durationOr(at.Field("interval"), pb.GetInterval(), 10*time.Second),
		BaseEjectionTime:   d.durationOr(at.Field("base_ejection_time"), pb.GetBaseEjectionTime(), 30*time.Second),
		MaxEjectionPercent: d.percentOr(at.Field("max_ejection_percent"), pb.GetMaxEjectionPercent(), 10),
	}
	o.MaxEjectionTime = d.durationOr(at.Field("max_ejection_time"), pb.GetMaxEjectionTime(), max(o.BaseEjectionTime, 300*time.Second))
	o.MaxEjectionTimeJitter = d.durationOr(at.Field("max_ejection_time_jitter"), pb.GetMaxEjectionTimeJitter(), 0)
	successRate := SuccessRateEjection{
		StdevFactor:           numberOr(pb.GetSuccessRateStdevFactor(), 1900),
		EnforcementPercentage: d.percentOr(at.Field("enforcing_success_rate"), pb.GetEnforcingSuccessRate(), 100),
		MinimumHosts:          numberOr(pb.GetSuccessRateMinimumHosts(), 5),
		RequestVolume:         numberOr(pb.GetSuccessRateRequestVolume(), 100),
	}
	failures := FailurePercentageEjection{
		Threshold:             d.percentOr(at.Field("failure_percentage_threshold"), pb.GetFailurePercentageThreshold(), 85),
		EnforcementPercentage: d.percentOr(at.Field("enforcing_failure_percentage"), pb.GetEnforcingFailurePercentage(), 0),
		MinimumHosts:          numberOr(pb.GetFailurePercentageMinimumHosts(), 5),
		RequestVolume:         numberOr(pb.GetFailurePercentageRequestVolume(), 50),
	}
	if successRate.EnforcementPercentage > 0 {
		o.SuccessRate = &successRate
	}
	if failures.EnforcementPercentage > 0 {
		o.FailurePercentage = &failures
	}
	d.consecutive(at, pb, o)
	if o.SuccessRate == nil && o.FailurePercentage == nil && o.Consecutive == [Runs]ConsecutiveEjection{} {
		return nil
	}
	if o.Interval < bounds.MinOutlierInterval {
		d.warn(at.Field("interval"), "is %v, so endpoints are evaluated every %v, the least that this client permits", o.Interval, bounds.MinOutlierInterval)
		o.Interval = bounds.MinOutlierInterval
	}
	return o
}

// consecutive decodes the ejections for consecutive failures. Unlike in Envoy, one is in use only
// if one of its two fields is set: gRPC clients have never ejected by them, and a Cluster that does not
// mention them does not ask for it. A field that is missing then has Envoy's default.
func (d clusterDecoder) consecutive(at *faults.Path, pb *clusterpb.OutlierDetection, o *OutlierDetection) {
	decode := func(failures *wrapperspb.UInt32Value, enforcing string, percentage *wrapperspb.UInt32Value, otherwise uint32) ConsecutiveEjection {
		c := ConsecutiveEjection{Failures: numberOr(failures, 5), EnforcementPercentage: d.percentOr(at.Field(enforcing), percentage, otherwise)}
		if failures == nil && percentage == nil || c.Failures == 0 || c.EnforcementPercentage == 0 {
			return ConsecutiveEjection{}
		}
		return c
	}
	o.Consecutive[FiveHundreds] = decode(pb.GetConsecutive_5Xx(), "enforcing_consecutive_5xx", pb.GetEnforcingConsecutive_5Xx(), 100)
	o.Consecutive[Gateway] = decode(pb.GetConsecutiveGatewayFailure(),
		"enforcing_consecutive_gateway_failure", pb.GetEnforcingConsecutiveGatewayFailure(), 0)
	local := decode(pb.GetConsecutiveLocalOriginFailure(),
		"enforcing_consecutive_local_origin_failure", pb.GetEnforcingConsecutiveLocalOriginFailure(), 100)
	if o.SplitLocalOriginErrors = pb.GetSplitExternalLocalOriginErrors(); o.SplitLocalOriginErrors {
		o.Consecutive[LocalOrigin] = local
	}
}

// HealthCheck says that the endpoints of a cluster are asked for their health, by Watch of gRPC's
// health service (gRFC A17).
type HealthCheck struct {
	// Service is the name of the service in the request. Empty: the server as a whole.
	Service string
}

// healthCheck decodes the first grpc_health_check of health_checks. Envoy takes one entry at most.
func (d clusterDecoder) healthCheck(pb *clusterpb.Cluster) (found *HealthCheck) {
	for i, check := range pb.GetHealthChecks() {
		byGRPC := check.GetGrpcHealthCheck()
		switch {
		case byGRPC == nil: // IgnoredFields reports it.
		case found != nil:
			d.ignore(faults.Item("health_checks", i), "there is another grpc_health_check before it, which is used")
		default:
			found = &HealthCheck{Service: byGRPC.GetServiceName()}
		}
	}
	return found
}

// Sessions are the settings of a Cluster for RPCs that a filter binds to endpoints
// (gRFCs A55 and A75).
type Sessions struct {
	// Statuses are the health statuses of endpoints that such RPCs go to
	// (common_lb_config.override_host_status).
	Statuses Set[HealthStatus]
	// IdleTimeout is how long a connection that only sessions need is kept after
	// the last pick of it.
	IdleTimeout time.Duration
}

// DefaultSessions are the settings of a Cluster that has none of its own.
var DefaultSessions = Sessions{Statuses: SetOf(HealthUnknown, HealthHealthy), IdleTimeout: time.Hour}

const httpProtocolOptionsTypeURL = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

func (d clusterDecoder) sessions(pb *clusterpb.Cluster) Sessions {
	s := DefaultSessions
	if set := pb.GetCommonLbConfig().GetOverrideHostStatus(); set != nil {
		s.Statuses = overrideHostStatus(set)
	}
	config := pb.GetUpstreamConfig()
	if config == nil {
		return s
	}
	at := faults.Field("upstream_config").Field("typed_config")
	options := new(upstreampb.HttpProtocolOptions)
	if !d.unmarshal(at, config.GetTypedConfig(), httpProtocolOptionsTypeURL, options) {
		return s
	}
	if idle := options.GetCommonHttpProtocolOptions().GetIdleTimeout(); idle != nil {
		s.IdleTimeout = d.duration(at.Field("common_http_protocol_options").Field("idle_timeout"), idle)
	}
	return s
}

// overrideHostStatus ignores statuses that gRPC does not support for sessions. gRFC A55
// requires them to be ignored rather than rejected, so that Envoy and gRPC can use the same
// Cluster.
func overrideHostStatus(pb *corepb.HealthStatusSet) (s Set[HealthStatus]) {
	for _, h := range pb.GetStatuses() {
		switch h := HealthStatus(h); h {
		case HealthUnknown, HealthHealthy, HealthDraining:
			s |= SetOf(h)
		}
	}
	return s
}

// LoadReporting says how the load of a cluster is reported to a management server
// (Cluster.lrs_server).
type LoadReporting struct {
	// Loads counts load for the server that sent the Cluster, which is the meaning of
	// "self". It is nil in a Cluster decoded without a server, which no balancer has.
	Loads *load.Store
	// Service is eds_cluster_config.service_name as the resource has it.
	Service string
	// Metrics are the backends' metrics to report (lrs_report_endpoint_metrics,
	// gRFC A85). nil: none.
	Metrics *load.Metrics
}

// ServerBound implements xdsclient.ServerBound.
func (c *Cluster) ServerBound() bool { return c.Load != nil }

// loadReporting returns nil if the load of the cluster is not to be reported.
func (d clusterDecoder) loadReporting(pb *clusterpb.Cluster) *LoadReporting {
	server := pb.GetLrsServer()
	if server == nil {
		return nil
	}
	if server.GetSelf() == nil {
		d.fault(faults.Field("lrs_server"), "must be self, is %s", whichOneof(server, "config_source_specifier"))
		return nil
	}
	return &LoadReporting{
		Loads:   d.Loads,
		Service: pb.GetEdsClusterConfig().GetServiceName(),
		Metrics: endpointMetrics(pb.GetLrsReportEndpointMetrics()),
	}
}

// endpointMetrics ignores names that are not in gRFC A85, as that specifies.
func endpointMetrics(names []string) *load.Metrics {
	m := make(load.Metrics)
	for _, name := range names {
		if name == load.CPU || name == load.Memory || name == load.Application || strings.HasPrefix(name, load.NamedMetrics) {
			m[name] = true
		}
	}
	if len(m) == 0 {
		return nil
	}
	return &m
}

// Service names a service for telemetry, by what Cluster.metadata has in its filter_metadata
// for "com.google.csm.telemetry_labels".
type Service struct {
	// Name is "service_name", Namespace is "service_namespace". One that is missing or is not a
	// string is "unknown", as in gRPC's own clients.
	Name, Namespace string
}

// telemetryMetadata is the key of Service in filter_metadata.
const telemetryMetadata = "com.google.csm.telemetry_labels"

// serviceOf returns nil if the Cluster has no such metadata.
func serviceOf(pb *clusterpb.Cluster) *Service {
	labels := pb.GetMetadata().GetFilterMetadata()[telemetryMetadata].GetFields()
	if labels == nil {
		return nil
	}
	return &Service{Name: stringOrUnknown(labels["service_name"]), Namespace: stringOrUnknown(labels["service_namespace"])}
}

func stringOrUnknown(v *structpb.Value) string {
	if s, ok := v.GetKind().(*structpb.Value_StringValue); ok {
		return s.StringValue
	}
	return "unknown"
}
