package xdsresource

import (
	"fmt"
	"math"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	upstreampb "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

type dropPB = endpointpb.ClusterLoadAssignment_Policy_DropOverload

func withDrops(drops ...*dropPB) *endpointpb.ClusterLoadAssignment {
	a := assignment()
	a.Policy = &endpointpb.ClusterLoadAssignment_Policy{DropOverloads: drops}
	return a
}

func drop(category string, numerator uint32, denominator typepb.FractionalPercent_DenominatorType) *dropPB {
	return &dropPB{Category: category, DropPercentage: &typepb.FractionalPercent{Numerator: numerator, Denominator: denominator}}
}

const (
	hundred     = typepb.FractionalPercent_HUNDRED
	tenThousand = typepb.FractionalPercent_TEN_THOUSAND
	perMillion  = typepb.FractionalPercent_MILLION
)

// gRFC A27, "ClusterLoadAssignment Proto".
func TestDrops(t *testing.T) {
	t.Parallel()
	checkEach(t, "Drops", func(t *testing.T, resource *endpointpb.ClusterLoadAssignment) []Drop {
		return mustDecode[Endpoints](t, EndpointsType, resource).Drops
	}, rows[*endpointpb.ClusterLoadAssignment, []Drop]{
		{"no policy", assignment(), nil},
		{"every denominator, in order", withDrops(drop("c", 7, hundred), drop("a", 7, tenThousand), drop("b", 7, perMillion)),
			[]Drop{{"c", 70_000}, {"a", 700}, {"b", 7}}},
		{"more than all", withDrops(drop("x", 101, hundred), drop("y", 1<<32-1, hundred)), []Drop{{"x", Million}, {"y", Million}}},
		{"nothing", withDrops(drop("x", 0, hundred), &dropPB{Category: "y"}), nil},
	})
	checkFaults(t, EndpointsType, withDrops(drop("", 1, perMillion), drop("x", 1, 9)), []fault{
		{"policy.drop_overloads[0].category", "must not be empty"},
		{"policy.drop_overloads[1].drop_percentage.denominator", "is the unknown value 9"},
	})
}

// gRFC A32: only max_requests of the first threshold of priority DEFAULT.
func TestMaxRequests(t *testing.T) {
	t.Parallel()
	type threshold = clusterpb.CircuitBreakers_Thresholds
	of := func(priority corepb.RoutingPriority, limit uint32) *threshold {
		return &threshold{Priority: priority, MaxRequests: wrapperspb.UInt32(limit)}
	}
	checkEach(t, "MaxRequests", func(t *testing.T, thresholds []*threshold) uint32 {
		c := edsCluster(func(c *clusterpb.Cluster) {
			c.CircuitBreakers = &clusterpb.CircuitBreakers{Thresholds: thresholds}
		})
		return mustDecode[Cluster](t, ClusterType, c).MaxRequests
	}, rows[[]*threshold, uint32]{
		{"no thresholds", nil, 1024},
		{"a limit", []*threshold{of(corepb.RoutingPriority_DEFAULT, 5)}, 5},
		{"none may pass", []*threshold{of(corepb.RoutingPriority_DEFAULT, 0)}, 0},
		{"priority HIGH only", []*threshold{of(corepb.RoutingPriority_HIGH, 5)}, 1024},
		{"HIGH before DEFAULT", []*threshold{of(corepb.RoutingPriority_HIGH, 5), of(corepb.RoutingPriority_DEFAULT, 6)}, 6},
		{"the first of two", []*threshold{of(corepb.RoutingPriority_DEFAULT, 5), of(corepb.RoutingPriority_DEFAULT, 6)}, 5},
		{"the first says nothing", []*threshold{{}, of(corepb.RoutingPriority_DEFAULT, 6)}, 1024},
	})
}

// Envoy, CircuitBreakers.Thresholds: max_retries; retry_budget, which "will override any configured
// retry circuit breaker". gRFC A44: there is no limit that was not asked for.
func TestRetryLimit(t *testing.T) {
	t.Parallel()
	type threshold = clusterpb.CircuitBreakers_Thresholds
	type budget = clusterpb.CircuitBreakers_Thresholds_RetryBudget
	clusterWith := func(thresholds []*threshold) *clusterpb.Cluster {
		return edsCluster(func(c *clusterpb.Cluster) {
			c.CircuitBreakers = &clusterpb.CircuitBreakers{Thresholds: thresholds}
		})
	}
	checkEach(t, "Retries", func(t *testing.T, thresholds []*threshold) *RetryLimit {
		return mustDecode[Cluster](t, ClusterType, clusterWith(thresholds)).Retries
	}, rows[[]*threshold, *RetryLimit]{
		{"no thresholds", nil, nil},
		{"another limit", []*threshold{{MaxRequests: wrapperspb.UInt32(5)}}, nil},
		{"max_retries", []*threshold{{MaxRetries: wrapperspb.UInt32(5)}}, &RetryLimit{Fixed: 5}},
		{"no retries", []*threshold{{MaxRetries: wrapperspb.UInt32(0)}}, &RetryLimit{}},
		{"priority HIGH", []*threshold{{Priority: corepb.RoutingPriority_HIGH, MaxRetries: wrapperspb.UInt32(5)}}, nil},
		{"the defaults of retry_budget", []*threshold{{RetryBudget: &budget{}}}, &RetryLimit{Fixed: 3, Percent: 20, Budget: true}},
		{"retry_budget instead of max_retries", []*threshold{{
			MaxRetries:  wrapperspb.UInt32(5),
			RetryBudget: &budget{BudgetPercent: &typepb.Percent{Value: 12.5}, MinRetryConcurrency: wrapperspb.UInt32(0)},
		}}, &RetryLimit{Percent: 12.5, Budget: true}},
		{"budget_interval", []*threshold{{RetryBudget: &budget{BudgetInterval: durationpb.New(time.Second)}}}, &RetryLimit{
			Fixed: 3, Percent: 20, Interval: time.Second, Budget: true,
		}},
	})
	for _, percent := range []float64{-1, 100.1, math.NaN()} {
		got := decodeFaults(t, ClusterType, clusterWith([]*threshold{{RetryBudget: &budget{BudgetPercent: &typepb.Percent{Value: percent}}}}))
		xdstest.Equal(t, "faults", []fault{{"circuit_breakers.thresholds[0].retry_budget.budget_percent", fmt.Sprintf("must be from 0 to 100, is %v", percent)}}, got)
	}
}

// TestHealthChecks: Envoy, Cluster.health_checks; gRFC A17: the service in the request may be empty.
func TestHealthChecks(t *testing.T) {
	t.Parallel()
	byGRPC := func(service string) *corepb.HealthCheck {
		return &corepb.HealthCheck{Timeout: durationpb.New(time.Second), HealthChecker: &corepb.HealthCheck_GrpcHealthCheck_{
			GrpcHealthCheck: &corepb.HealthCheck_GrpcHealthCheck{ServiceName: service},
		}}
	}
	byTCP := &corepb.HealthCheck{HealthChecker: &corepb.HealthCheck_TcpHealthCheck_{TcpHealthCheck: new(corepb.HealthCheck_TcpHealthCheck)}}
	clusterWith := func(checks []*corepb.HealthCheck) *clusterpb.Cluster {
		return edsCluster(func(c *clusterpb.Cluster) { c.HealthChecks = checks })
	}
	checkEach(t, "HealthCheck", func(t *testing.T, checks []*corepb.HealthCheck) *HealthCheck {
		return mustDecode[Cluster](t, ClusterType, clusterWith(checks)).HealthCheck
	}, rows[[]*corepb.HealthCheck, *HealthCheck]{
		{"none", nil, nil},
		{"another kind", []*corepb.HealthCheck{byTCP}, nil},
		{"the server as a whole", []*corepb.HealthCheck{byGRPC("")}, &HealthCheck{}},
		{"the first by gRPC", []*corepb.HealthCheck{byTCP, byGRPC("a"), byGRPC("b")}, &HealthCheck{Service: "a"}},
	})
	const is = "this client does not act on the field"
	checkIgnored(t, ignoredOf(t, ClusterType, clusterWith([]*corepb.HealthCheck{byTCP, byGRPC("a"), byGRPC("b")})),
		note{"health_checks[0].tcp_health_check", is}, note{"health_checks[1].timeout", is},
		note{"health_checks[2]", "there is another grpc_health_check before it, which is used"})
}

func withOutliers(o *clusterpb.OutlierDetection) *clusterpb.Cluster {
	return edsCluster(func(c *clusterpb.Cluster) { c.OutlierDetection = o })
}

// gRFC A50, "xDS Integration", and the defaults of "LB Policy Config".
func TestOutlierDetection(t *testing.T) {
	t.Parallel()
	n := wrapperspb.UInt32
	defaults := func() *OutlierDetection {
		return &OutlierDetection{
			Interval: 10 * time.Second, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 300 * time.Second, MaxEjectionPercent: 10,
			SuccessRate: &SuccessRateEjection{StdevFactor: 1900, EnforcementPercentage: 100, MinimumHosts: 5, RequestVolume: 100},
		}
	}
	both := defaults()
	both.FailurePercentage = &FailurePercentageEjection{Threshold: 85, EnforcementPercentage: 7, MinimumHosts: 5, RequestVolume: 50}
	long := defaults()
	long.BaseEjectionTime, long.MaxEjectionTime = 400*time.Second, 400*time.Second
	consecutive := func(edit func(*OutlierDetection)) *OutlierDetection {
		o := defaults()
		o.SuccessRate = nil
		edit(o)
		return o
	}
	checkEach(t, "Outliers", func(t *testing.T, pb *clusterpb.OutlierDetection) *OutlierDetection {
		return mustDecode[Cluster](t, ClusterType, withOutliers(pb)).Outliers
	}, rows[*clusterpb.OutlierDetection, *OutlierDetection]{
		{"not set", nil, nil},
		{"empty: success rate with defaults", &clusterpb.OutlierDetection{}, defaults()},
		{"both algorithms", &clusterpb.OutlierDetection{EnforcingFailurePercentage: n(7)}, both},
		{"neither algorithm", &clusterpb.OutlierDetection{EnforcingSuccessRate: n(0)}, nil},
		{"consecutive failures only by a field that is set", &clusterpb.OutlierDetection{
			EnforcingSuccessRate: n(0), SplitExternalLocalOriginErrors: true,
		}, nil},
		{"as Istio writes consecutive5xxErrors", &clusterpb.OutlierDetection{
			EnforcingSuccessRate: n(0), Consecutive_5Xx: n(7), EnforcingConsecutive_5Xx: n(100),
		}, consecutive(func(o *OutlierDetection) { o.Consecutive5xx = &ConsecutiveEjection{7, 100} })},
		{"consecutive failures, with Envoy's defaults of the other field", &clusterpb.OutlierDetection{
			EnforcingSuccessRate: n(0), Consecutive_5Xx: n(7), EnforcingConsecutiveGatewayFailure: n(8),
			SplitExternalLocalOriginErrors: true, ConsecutiveLocalOriginFailure: n(9),
		}, consecutive(func(o *OutlierDetection) {
			o.Consecutive5xx, o.ConsecutiveGatewayFailure = &ConsecutiveEjection{7, 100}, &ConsecutiveEjection{5, 8}
			o.SplitLocalOriginErrors, o.ConsecutiveLocalOriginFailure = true, &ConsecutiveEjection{9, 100}
		})},
		{"gateway failures are not enforced by default, and 0 is off", &clusterpb.OutlierDetection{
			EnforcingSuccessRate: n(0), ConsecutiveGatewayFailure: n(7), Consecutive_5Xx: n(0), EnforcingConsecutive_5Xx: n(100),
		}, nil},
		{"not enforced", &clusterpb.OutlierDetection{
			EnforcingSuccessRate: n(0), Consecutive_5Xx: n(7), EnforcingConsecutive_5Xx: n(0),
		}, nil},
		{"local-origin failures need the split", &clusterpb.OutlierDetection{
			EnforcingSuccessRate: n(0), ConsecutiveLocalOriginFailure: n(9),
		}, nil},
		{"a base time above the greatest", &clusterpb.OutlierDetection{BaseEjectionTime: durationpb.New(400 * time.Second)}, long},
		{"everything", &clusterpb.OutlierDetection{
			Interval: durationpb.New(time.Second), BaseEjectionTime: durationpb.New(2 * time.Second), MaxEjectionTime: durationpb.New(3 * time.Second),
			MaxEjectionPercent: n(4), SuccessRateStdevFactor: n(5), EnforcingSuccessRate: n(6), SuccessRateMinimumHosts: n(7), SuccessRateRequestVolume: n(8),
			FailurePercentageThreshold: n(9), EnforcingFailurePercentage: n(10), FailurePercentageMinimumHosts: n(11), FailurePercentageRequestVolume: n(12),
			MaxEjectionTimeJitter: durationpb.New(4 * time.Second),
		}, &OutlierDetection{
			Interval: time.Second, BaseEjectionTime: 2 * time.Second, MaxEjectionTime: 3 * time.Second, MaxEjectionPercent: 4,
			MaxEjectionTimeJitter: 4 * time.Second,

			SuccessRate:       &SuccessRateEjection{StdevFactor: 5, EnforcementPercentage: 6, MinimumHosts: 7, RequestVolume: 8},
			FailurePercentage: &FailurePercentageEjection{Threshold: 9, EnforcementPercentage: 10, MinimumHosts: 11, RequestVolume: 12},
		}},
	})
	const at = "outlier_detection."
	checkFaults(t, ClusterType, withOutliers(&clusterpb.OutlierDetection{
		Interval: durationpb.New(-1), BaseEjectionTime: durationpb.New(-1), MaxEjectionTime: durationpb.New(-1), MaxEjectionPercent: n(101),
		EnforcingSuccessRate: n(101), FailurePercentageThreshold: n(101), EnforcingFailurePercentage: n(101),
		MaxEjectionTimeJitter: durationpb.New(-1), EnforcingConsecutive_5Xx: n(101), EnforcingConsecutiveGatewayFailure: n(102),
		EnforcingConsecutiveLocalOriginFailure: n(103),
	}), []fault{
		{at + "interval", "is negative: -1ns"},
		{at + "base_ejection_time", "is negative: -1ns"},
		{at + "max_ejection_percent", "must be at most 100, is 101"},
		{at + "max_ejection_time", "is negative: -1ns"},
		{at + "max_ejection_time_jitter", "is negative: -1ns"},
		{at + "enforcing_success_rate", "must be at most 100, is 101"},
		{at + "failure_percentage_threshold", "must be at most 100, is 101"},
		{at + "enforcing_failure_percentage", "must be at most 100, is 101"},
		{at + "enforcing_consecutive_5xx", "must be at most 100, is 101"},
		{at + "enforcing_consecutive_gateway_failure", "must be at most 100, is 102"},
		{at + "enforcing_consecutive_local_origin_failure", "must be at most 100, is 103"},
	})
}

// gRFC A85, "CDS Resource Validation": the names of metrics. Unknown ones are ignored.
func TestEndpointMetricsToReport(t *testing.T) {
	t.Parallel()
	keys := func(keys ...string) map[string]struct{} {
		set := make(map[string]struct{})
		for _, k := range keys {
			set[k] = struct{}{}
		}
		return set
	}
	checkEach(t, "Metrics", func(t *testing.T, names []string) *load.Metrics {
		c := mustDecode[Cluster](t, ClusterType, edsCluster(func(c *clusterpb.Cluster) {
			c.LrsServer, c.LrsReportEndpointMetrics = self(), names
		}))
		return c.Load.Metrics
	}, rows[[]string, *load.Metrics]{
		{"none", nil, nil},
		{"only unknown ones", []string{"rps_fractional", "utilization.x", "request_cost.*", "named_metrics", "*", ""}, nil},
		{"the top-level fields", []string{"cpu_utilization", "mem_utilization", "application_utilization"}, &load.Metrics{CPU: true, Memory: true, Application: true}},
		{"an unknown one beside", []string{"eps", "cpu_utilization"}, &load.Metrics{CPU: true}},
		{"keys", []string{"named_metrics.foo", "named_metrics.a.b", "named_metrics."}, &load.Metrics{Named: keys("foo", "a.b", "")}},
		{"all keys", []string{"named_metrics.*"}, &load.Metrics{AllNamed: true}},
		{"all keys and one", []string{"named_metrics.foo", "named_metrics.*"}, &load.Metrics{AllNamed: true}},
	})
}

// config_source.proto, "self": the server that the resource came from. So the value
// is of that server alone.
func TestLoadReportingIsOfTheServer(t *testing.T) {
	t.Parallel()
	loads := load.NewStore(nil)
	decode := func(edit func(*clusterpb.Cluster)) *Cluster {
		_, value, err := ClusterType.Decode(xdsmsg.Any(edsCluster(edit)), xdsclient.DecodeOptions{Loads: loads})
		xdstest.NoError(t, err)
		return value.(*Cluster)
	}
	c := decode(func(c *clusterpb.Cluster) { c.LrsServer, c.EdsClusterConfig.ServiceName = self(), "svc" })
	if c.Load == nil || c.Load.Loads != loads || c.Load.Service != "svc" || !c.ServerBound() {
		t.Errorf("Load = %+v, bound to the server: %v", c.Load, c.ServerBound())
	}
	c = decode(func(c *clusterpb.Cluster) { c.LrsReportEndpointMetrics = []string{"cpu_utilization"} })
	if c.Load != nil || c.ServerBound() {
		t.Errorf("without lrs_server: Load = %+v, bound to the server: %v", c.Load, c.ServerBound())
	}
}

func withOverrideHosts(set *corepb.HealthStatusSet) *clusterpb.Cluster {
	return edsCluster(func(c *clusterpb.Cluster) {
		c.CommonLbConfig = &clusterpb.Cluster_CommonLbConfig{OverrideHostStatus: set}
	})
}

func withUpstream(config proto.Message) *clusterpb.Cluster {
	return edsCluster(func(c *clusterpb.Cluster) {
		c.UpstreamConfig = &corepb.TypedExtensionConfig{Name: "u"}
		if config != nil {
			c.UpstreamConfig.TypedConfig = xdsmsg.Any(config)
		}
	})
}

func idleTimeout(d *durationpb.Duration) *upstreampb.HttpProtocolOptions {
	return &upstreampb.HttpProtocolOptions{CommonHttpProtocolOptions: &corepb.HttpProtocolOptions{IdleTimeout: d}}
}

// gRFC A55, "Load Balancer Configuration Containing override_host_status", and
// gRFC A75, "Reading the idle_timeout field in CDS".
func TestSessions(t *testing.T) {
	t.Parallel()
	statuses := func(s ...corepb.HealthStatus) *corepb.HealthStatusSet {
		return &corepb.HealthStatusSet{Statuses: s}
	}
	byDefault := HealthSetOf(HealthUnknown, HealthHealthy)
	checkEach(t, "Sessions", func(t *testing.T, resource *clusterpb.Cluster) Sessions {
		return mustDecode[Cluster](t, ClusterType, resource).Sessions
	}, rows[*clusterpb.Cluster, Sessions]{
		{"nothing", edsCluster(), Sessions{byDefault, time.Hour}},
		{"common_lb_config without the set", withOverrideHosts(nil), Sessions{byDefault, time.Hour}},
		{"an empty set", withOverrideHosts(statuses()), Sessions{0, time.Hour}},
		{"DRAINING", withOverrideHosts(statuses(corepb.HealthStatus_DRAINING)), Sessions{HealthSetOf(HealthDraining), time.Hour}},
		{
			"statuses that gRPC ignores",
			withOverrideHosts(statuses(corepb.HealthStatus_HEALTHY, corepb.HealthStatus_UNHEALTHY, corepb.HealthStatus_TIMEOUT, corepb.HealthStatus_DEGRADED, 77)),
			Sessions{HealthSetOf(HealthHealthy), time.Hour},
		},
		{"HttpProtocolOptions without common options", withUpstream(&upstreampb.HttpProtocolOptions{}), Sessions{byDefault, time.Hour}},
		{"common options without idle_timeout", withUpstream(idleTimeout(nil)), Sessions{byDefault, time.Hour}},
		{"idle_timeout", withUpstream(idleTimeout(durationpb.New(time.Minute))), Sessions{byDefault, time.Minute}},
		{"an idle_timeout of 0", withUpstream(idleTimeout(&durationpb.Duration{})), Sessions{byDefault, 0}},
	})
}

func TestSessionFaults(t *testing.T) {
	t.Parallel()
	const at = "upstream_config.typed_config"
	const idle = at + ".common_http_protocol_options.idle_timeout"
	checkAllFaults(t, ClusterType, []faultTest{
		{"no typed_config", withUpstream(nil), []fault{{at, `has type "", want "` + httpProtocolOptionsTypeURL + `"`}}},
		{
			"another type", withUpstream(&corepb.HttpProtocolOptions{}),
			[]fault{{at, `has type "type.googleapis.com/envoy.config.core.v3.HttpProtocolOptions", want "` + httpProtocolOptionsTypeURL + `"`}},
		},
		{"a negative idle_timeout", withUpstream(idleTimeout(durationpb.New(-1))), []fault{{idle, "is negative: -1ns"}}},
		{"seconds out of range", withUpstream(idleTimeout(&durationpb.Duration{Seconds: 315576000001})), []fault{{idle, "is not a valid duration: seconds: 315576000001, nanos: 0"}}},
		{"nanos out of range", withUpstream(idleTimeout(&durationpb.Duration{Nanos: 1e9})), []fault{{idle, "is not a valid duration: seconds: 0, nanos: 1000000000"}}},
	})
}

func TestHealthSetOfUnknownStatuses(t *testing.T) {
	t.Parallel()
	all := HealthSet(0xff)
	for _, h := range []HealthStatus{-1, 8, 1 << 30} {
		if all.Has(h) {
			t.Errorf("Has(%d) is true", h)
		}
	}
}
