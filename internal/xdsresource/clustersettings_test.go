package xdsresource

import (
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/dynxds/dynxds/internal/load"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
)

// gRFC A27, "ClusterLoadAssignment Proto".
func TestDrops(t *testing.T) {
	t.Parallel()
	dropping := func(t testing.TB, fields string) *endpointpb.ClusterLoadAssignment {
		return withText(t, assignment(), `policy{`+fields+`}`)
	}
	checkEach(t, "Drops", func(t *testing.T, fields string) []Drop {
		return mustDecode[Endpoints](t, EndpointsType, dropping(t, fields)).Drops
	}, rows[string, []Drop]{
		{"none", ``, nil},
		{"every denominator, in order", `drop_overloads{category:"c" drop_percentage{numerator:7}}
			drop_overloads{category:"a" drop_percentage{numerator:7 denominator:TEN_THOUSAND}}
			drop_overloads{category:"b" drop_percentage{numerator:7 denominator:MILLION}}`,
			[]Drop{{"c", 70_000}, {"a", 700}, {"b", 7}}},
		{"more than all", `drop_overloads{category:"x" drop_percentage{numerator:101}}
			drop_overloads{category:"y" drop_percentage{numerator:4294967295}}`, []Drop{{"x", Million}, {"y", Million}}},
		{"nothing", `drop_overloads{category:"x" drop_percentage{}} drop_overloads{category:"y"}`, nil},
	})
	xdstest.Equal(t, "faults",
		"policy.drop_overloads[0].category: must not be empty; "+
			"policy.drop_overloads[1].drop_percentage.denominator: is the unknown value 9",
		faultText(t, EndpointsType, dropping(t, `drop_overloads{drop_percentage{numerator:1}}
			drop_overloads{category:"x" drop_percentage{numerator:1 denominator:9}}`)))
}

// gRFC A32: only max_requests of the first threshold of priority DEFAULT.
func TestMaxRequests(t *testing.T) {
	t.Parallel()
	checkEach(t, "MaxRequests", func(t *testing.T, thresholds string) uint32 {
		return mustDecode[Cluster](t, ClusterType, blue(t, `circuit_breakers{`+thresholds+`}`)).MaxRequests
	}, rows[string, uint32]{
		{"no thresholds", ``, 1024},
		{"a limit", `thresholds{max_requests{value:5}}`, 5},
		{"none may pass", `thresholds{max_requests{}}`, 0},
		{"priority HIGH only", `thresholds{priority:HIGH max_requests{value:5}}`, 1024},
		{"HIGH before DEFAULT", `thresholds{priority:HIGH max_requests{value:5}} thresholds{max_requests{value:6}}`, 6},
		{"the first of two", `thresholds{max_requests{value:5}} thresholds{max_requests{value:6}}`, 5},
		{"the first says nothing", `thresholds{} thresholds{max_requests{value:6}}`, 1024},
	})
}

// Envoy, CircuitBreakers.Thresholds: max_retries; retry_budget, which "will override any configured
// retry circuit breaker". gRFC A44: there is no limit that was not asked for.
func TestRetryLimit(t *testing.T) {
	t.Parallel()
	limited := func(t testing.TB, thresholds string) *clusterpb.Cluster {
		return blue(t, `circuit_breakers{`+thresholds+`}`)
	}
	checkEach(t, "Retries", func(t *testing.T, thresholds string) *RetryLimit {
		return mustDecode[Cluster](t, ClusterType, limited(t, thresholds)).Retries
	}, rows[string, *RetryLimit]{
		{"no thresholds", ``, nil},
		{"another limit", `thresholds{max_requests{value:5}}`, nil},
		{"max_retries", `thresholds{max_retries{value:5}}`, &RetryLimit{Fixed: 5}},
		{"no retries", `thresholds{max_retries{}}`, &RetryLimit{}},
		{"priority HIGH", `thresholds{priority:HIGH max_retries{value:5}}`, nil},
		{"the defaults of retry_budget", `thresholds{retry_budget{}}`, &RetryLimit{Fixed: 3, Percent: 20, Budget: true}},
		{"retry_budget instead of max_retries",
			`thresholds{max_retries{value:5} retry_budget{budget_percent{value:12.5} min_retry_concurrency{}}}`,
			&RetryLimit{Percent: 12.5, Budget: true}},
		{"budget_interval", `thresholds{retry_budget{budget_interval{seconds:1}}}`,
			&RetryLimit{Fixed: 3, Percent: 20, Interval: time.Second, Budget: true}},
	})
	const fault = "circuit_breakers.thresholds[0].retry_budget.budget_percent: must be from 0 to 100, is "
	for text, value := range map[string]string{"-1": "-1", "100.1": "100.1", "nan": "NaN"} {
		c := limited(t, `thresholds{retry_budget{budget_percent{value:`+text+`}}}`)
		xdstest.Equal(t, "faults", fault+value, faultText(t, ClusterType, c))
	}
}

// TestHealthChecks: Envoy, Cluster.health_checks; gRFC A17: the service in the request may be empty.
func TestHealthChecks(t *testing.T) {
	t.Parallel()
	const byTCP = `health_checks{tcp_health_check{}}`
	const several = byTCP + `health_checks{timeout{seconds:1} grpc_health_check{service_name:"a"}}
		health_checks{timeout{seconds:1} grpc_health_check{service_name:"b"}}`
	checkEach(t, "HealthCheck", func(t *testing.T, fields string) *HealthCheck {
		return mustDecode[Cluster](t, ClusterType, blue(t, fields)).HealthCheck
	}, rows[string, *HealthCheck]{
		{"none", ``, nil},
		{"another kind", byTCP, nil},
		{"the server as a whole", `health_checks{timeout{seconds:1} grpc_health_check{}}`, &HealthCheck{}},
		{"the first by gRPC", several, &HealthCheck{Service: "a"}},
	})
	checkIgnored(t, ignoredOf(t, ClusterType, blue(t, several)),
		note{"health_checks[0].tcp_health_check", notActedOn}, note{"health_checks[1].timeout", notActedOn},
		note{"health_checks[2]", "there is another grpc_health_check before it, which is used"})
}

// gRFC A50, "xDS Integration", and the defaults of "LB Policy Config".
func TestOutlierDetection(t *testing.T) {
	t.Parallel()
	edited := func(edit func(*OutlierDetection)) *OutlierDetection {
		o := &OutlierDetection{
			Interval: 10 * time.Second, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 300 * time.Second, MaxEjectionPercent: 10,
			SuccessRate: &SuccessRateEjection{StdevFactor: 1900, EnforcementPercentage: 100, MinimumHosts: 5, RequestVolume: 100},
		}
		edit(o)
		return o
	}
	const only = `enforcing_success_rate{}`
	checkEach(t, "Outliers", func(t *testing.T, fields string) *OutlierDetection {
		if fields != "" {
			fields = `outlier_detection{` + fields + `}`
		}
		return mustDecode[Cluster](t, ClusterType, blue(t, fields)).Outliers
	}, rows[string, *OutlierDetection]{
		{"not set", "", nil},
		{"empty: success rate with defaults", " ", edited(func(*OutlierDetection) {})},
		{"both algorithms", `enforcing_failure_percentage{value:7}`, edited(func(o *OutlierDetection) {
			o.FailurePercentage = &FailurePercentageEjection{Threshold: 85, EnforcementPercentage: 7, MinimumHosts: 5, RequestVolume: 50}
		})},
		{"neither algorithm", only, nil},
		{"consecutive failures only by a field that is set", only + `split_external_local_origin_errors:true`, nil},
		{"as Istio writes consecutive5xxErrors", only + `consecutive_5xx{value:7} enforcing_consecutive_5xx{value:100}`,
			edited(func(o *OutlierDetection) { o.SuccessRate, o.Consecutive5xx = nil, &ConsecutiveEjection{7, 100} })},
		{"consecutive failures, with Envoy's defaults of the other field", only + `consecutive_5xx{value:7}
			enforcing_consecutive_gateway_failure{value:8} split_external_local_origin_errors:true
			consecutive_local_origin_failure{value:9}`, edited(func(o *OutlierDetection) {
			o.SuccessRate = nil
			o.Consecutive5xx, o.ConsecutiveGatewayFailure = &ConsecutiveEjection{7, 100}, &ConsecutiveEjection{5, 8}
			o.SplitLocalOriginErrors, o.ConsecutiveLocalOriginFailure = true, &ConsecutiveEjection{9, 100}
		})},
		{"gateway failures are not enforced by default, and 0 is off",
			only + `consecutive_gateway_failure{value:7} consecutive_5xx{} enforcing_consecutive_5xx{value:100}`, nil},
		{"not enforced", only + `consecutive_5xx{value:7} enforcing_consecutive_5xx{}`, nil},
		{"local-origin failures need the split", only + `consecutive_local_origin_failure{value:9}`, nil},
		{"a base time above the greatest", `base_ejection_time{seconds:400}`,
			edited(func(o *OutlierDetection) { o.BaseEjectionTime, o.MaxEjectionTime = 400*time.Second, 400*time.Second })},
		{"an interval that is too short", `interval{nanos:99000000}`,
			edited(func(o *OutlierDetection) { o.Interval = 100 * time.Millisecond })},
		{"everything", `interval{seconds:1} base_ejection_time{seconds:2} max_ejection_time{seconds:3}
			max_ejection_percent{value:4} success_rate_stdev_factor{value:5} enforcing_success_rate{value:6}
			success_rate_minimum_hosts{value:7} success_rate_request_volume{value:8}
			failure_percentage_threshold{value:9} enforcing_failure_percentage{value:10}
			failure_percentage_minimum_hosts{value:11} failure_percentage_request_volume{value:12}
			max_ejection_time_jitter{seconds:4}`,
			&OutlierDetection{
				Interval: time.Second, BaseEjectionTime: 2 * time.Second, MaxEjectionTime: 3 * time.Second, MaxEjectionPercent: 4,
				MaxEjectionTimeJitter: 4 * time.Second,

				SuccessRate:       &SuccessRateEjection{StdevFactor: 5, EnforcementPercentage: 6, MinimumHosts: 7, RequestVolume: 8},
				FailurePercentage: &FailurePercentageEjection{Threshold: 9, EnforcementPercentage: 10, MinimumHosts: 11, RequestVolume: 12},
			}},
	})
	checkIgnored(t, ignoredOf(t, ClusterType, blue(t, `outlier_detection{interval{nanos:99000000}}`)),
		note{"outlier_detection.interval", "is 99ms, so endpoints are evaluated every 100ms, the least that this client permits"})
	const negative, percent = ": is negative: -1ns; @.", ": must be at most 100, is 101; @."
	checkTextFaults(t, ClusterType, "outlier_detection", blue, []textCase{{"faults of all fields", `outlier_detection{
		interval{nanos:-1} base_ejection_time{nanos:-1} max_ejection_time{nanos:-1} max_ejection_percent{value:101}
		enforcing_success_rate{value:101} failure_percentage_threshold{value:101} enforcing_failure_percentage{value:101}
		max_ejection_time_jitter{nanos:-1} enforcing_consecutive_5xx{value:101}
		enforcing_consecutive_gateway_failure{value:102} enforcing_consecutive_local_origin_failure{value:103}}`,
		"@.interval" + negative + "base_ejection_time" + negative + "max_ejection_percent" + percent +
			"max_ejection_time" + negative + "max_ejection_time_jitter" + negative + "enforcing_success_rate" + percent +
			"failure_percentage_threshold" + percent + "enforcing_failure_percentage" + percent + "enforcing_consecutive_5xx" + percent +
			"enforcing_consecutive_gateway_failure: must be at most 100, is 102; " +
			"@.enforcing_consecutive_local_origin_failure: must be at most 100, is 103"}})
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
		c := blue(t, `lrs_server{self{}}`)
		c.LrsReportEndpointMetrics = names
		return mustDecode[Cluster](t, ClusterType, c).Load.Metrics
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
	decode := func(fields string) *Cluster {
		value, err := ClusterType.Decode(xdsmsg.Any(blue(t, fields)), xdsclient.DecodeOptions{Loads: loads})
		xdstest.NoError(t, err)
		return value.(*Cluster)
	}
	c := decode(`lrs_server{self{}} eds_cluster_config{service_name:"svc"}`)
	if c.Load == nil || c.Load.Loads != loads || c.Load.Service != "svc" || !c.ServerBound() {
		t.Errorf("Load = %+v, bound to the server: %v", c.Load, c.ServerBound())
	}
	c = decode(`lrs_report_endpoint_metrics:"cpu_utilization"`)
	if c.Load != nil || c.ServerBound() {
		t.Errorf("without lrs_server: Load = %+v, bound to the server: %v", c.Load, c.ServerBound())
	}
}

// gRFC A55, "Load Balancer Configuration Containing override_host_status", and
// gRFC A75, "Reading the idle_timeout field in CDS".
func TestSessions(t *testing.T) {
	t.Parallel()
	byDefault := HealthSetOf(HealthUnknown, HealthHealthy)
	upstream := func(fields string) string {
		return `upstream_config{typed_config{[HttpProtocolOptions]{` + fields + `}}}`
	}
	checkEach(t, "Sessions", func(t *testing.T, fields string) Sessions {
		return mustDecode[Cluster](t, ClusterType, blue(t, fields)).Sessions
	}, rows[string, Sessions]{
		{"nothing", ``, Sessions{byDefault, time.Hour}},
		{"common_lb_config without the set", `common_lb_config{}`, Sessions{byDefault, time.Hour}},
		{"an empty set", `common_lb_config{override_host_status{}}`, Sessions{0, time.Hour}},
		{"DRAINING", `common_lb_config{override_host_status{statuses:DRAINING}}`, Sessions{HealthSetOf(HealthDraining), time.Hour}},
		{"statuses that gRPC ignores", `common_lb_config{override_host_status{statuses:[HEALTHY,UNHEALTHY,TIMEOUT,DEGRADED,77]}}`,
			Sessions{HealthSetOf(HealthHealthy), time.Hour}},
		{"HttpProtocolOptions without common options", upstream(``), Sessions{byDefault, time.Hour}},
		{"common options without idle_timeout", upstream(`common_http_protocol_options{}`), Sessions{byDefault, time.Hour}},
		{"idle_timeout", upstream(`common_http_protocol_options{idle_timeout{seconds:60}}`), Sessions{byDefault, time.Minute}},
		{"an idle_timeout of 0", upstream(`common_http_protocol_options{idle_timeout{}}`), Sessions{byDefault, 0}},
	})
	const at = "upstream_config.typed_config"
	const idle, want = "@.common_http_protocol_options.idle_timeout: ", `", want "` + httpProtocolOptionsTypeURL + `"`
	checkTextFaults(t, ClusterType, at, blue, []textCase{
		{"no typed_config", `upstream_config{}`, `@: has type "` + want},
		{"another type", `upstream_config{typed_config{[RoundRobin]{}}}`,
			`@: has type "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin` + want},
		{"a negative idle_timeout", upstream(`common_http_protocol_options{idle_timeout{nanos:-1}}`), idle + "is negative: -1ns"},
		{"seconds out of range", upstream(`common_http_protocol_options{idle_timeout{seconds:315576000001}}`),
			idle + "is not a valid duration: seconds: 315576000001, nanos: 0"},
		{"nanos out of range", upstream(`common_http_protocol_options{idle_timeout{nanos:1000000000}}`),
			idle + "is not a valid duration: seconds: 0, nanos: 1000000000"},
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
