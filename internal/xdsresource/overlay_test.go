package xdsresource

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// parseOverrides parses a bootstrap with the overrides.
func parseOverrides(overrides string) (*bootstrap.Config, error) {
	config, err := bootstrap.Parse("test", fmt.Appendf(nil, `{
		"xds_servers": [{"server_uri": "dns:///xds", "channel_creds": [{"type": "insecure"}]}],
		"authorities": {"a": {}}, "overrides": %s}`, overrides))
	if err == nil {
		err = CheckOverrides(config)
	}
	return config, err
}

// overriding returns options to decode with the overrides.
func overriding(t testing.TB, overrides string) xdsclient.DecodeOptions {
	t.Helper()
	config, err := parseOverrides(overrides)
	xdstest.NoError(t, err)
	return xdsclient.DecodeOptions{Bootstrap: config}
}

func decodeWith[T any](t testing.TB, rt *xdsclient.ResourceType, m proto.Message, o xdsclient.DecodeOptions) *T {
	t.Helper()
	_, value, err := rt.Decode(xdsmsg.Any(m), o)
	if err != nil {
		t.Fatalf("Decode(%s) = %v, want no error", rt.Name, err)
	}
	return value.(*T)
}

// describeChanges writes each change on a line.
func describeChanges(changes Changes) (lines []string) {
	for _, c := range changes {
		lines = append(lines, fmt.Sprintf("%s %v: %s → %s", c.Setting, c.By, describeMessage(c.Received), describeMessage(c.Used)))
	}
	return lines
}

func changesOf(r *Route) Changes {
	if r.Changes == nil {
		return nil
	}
	return *r.Changes
}

func describeMessage(m proto.Message) string {
	if !m.ProtoReflect().IsValid() {
		return "none"
	}
	text, _ := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	var v any
	_ = json.Unmarshal(text, &v)
	text, _ = json.Marshal(v)
	return string(text)
}

func TestOverridesOfClusters(t *testing.T) {
	t.Parallel()
	received := xdsmsg.EDSCluster("orders-v1", "")
	received.OutlierDetection = &clusterpb.OutlierDetection{
		Interval: durationpb.New(1500 * time.Millisecond), MaxEjectionPercent: wrapperspb.UInt32(50),
	}
	received.CircuitBreakers = &clusterpb.CircuitBreakers{Thresholds: []*clusterpb.CircuitBreakers_Thresholds{
		{Priority: corepb.RoutingPriority_HIGH, MaxRequests: wrapperspb.UInt32(1)},
		{MaxRequests: wrapperspb.UInt32(100), MaxRetries: wrapperspb.UInt32(3)},
	}}
	for _, test := range []struct {
		name, overrides string
		check           func(c *Cluster) bool
		changes         []string
		ignored         []note
	}{
		{name: "fields replace those received, and others stay",
			overrides: `[{"clusters": "orders-v1", "outlier_detection": {"interval": "2s", "consecutive_5xx": 7}}]`,
			check: func(c *Cluster) bool {
				o := c.Outliers
				return o.Interval == 2*time.Second && o.MaxEjectionPercent == 50 && o.Consecutive5xx.Failures == 7 && c.MaxRequests == 100
			},
			changes: []string{`outlier_detection [0]: {"interval":"1.500s","max_ejection_percent":50} → {"consecutive_5xx":7,"interval":"2s","max_ejection_percent":50}`}},
		{name: "null removes a setting and a field",
			overrides: `[{"clusters": "orders-*", "outlier_detection": null, "circuit_breakers": {"max_requests": null, "max_retries": 0}}]`,
			check: func(c *Cluster) bool {
				return c.Outliers == nil && c.MaxRequests == DefaultMaxRequests && c.Retries.Fixed == 0
			},
			changes: []string{
				`circuit_breakers [0]: {"max_requests":100,"max_retries":3} → {"max_retries":0}`,
				`outlier_detection [0]: {"interval":"1.500s","max_ejection_percent":50} → none`}},
		{name: "all that match apply in order",
			overrides: `[{"clusters": "*", "circuit_breakers": {"max_requests": 10, "max_retries": 1}}, {"clusters": "users", "subset_size": 3},
				{"clusters": "*-v1", "circuit_breakers": {"max_requests": 20}}, {"clusters": "orders*v1", "subset_size": 7}]`,
			check: func(c *Cluster) bool {
				return c.MaxRequests == 20 && c.Retries.Fixed == 1 && c.Subsets == Subsets{OfPriority: 7}
			},
			changes: []string{
				`circuit_breakers [0 2]: {"max_requests":100,"max_retries":3} → {"max_requests":20,"max_retries":1}`,
				`subset_size [3]: none → 7`}},
		{name: "messages within are merged", overrides: `[{"clusters": "*", "circuit_breakers": {"retry_budget": {"min_retry_concurrency": 9}}}]`,
			check:   func(c *Cluster) bool { return *c.Retries == RetryLimit{Fixed: 9, Percent: 20, Budget: true} },
			changes: []string{`circuit_breakers [0]: {"max_requests":100,"max_retries":3} → {"max_requests":100,"max_retries":3,"retry_budget":{"min_retry_concurrency":9}}`}},
		{name: "what is so already is no change", overrides: `[{"clusters": "*", "circuit_breakers": {"max_requests": 100}, "subset_size": null}]`,
			check: func(c *Cluster) bool { return c.MaxRequests == 100 }},
		{name: "others match", overrides: `[{"clusters": "orders", "subset_size": 3}, {"clusters": "orders-v1*v1", "subset_size": 3}, {"routes": "*", "timeout": "1s"}]`,
			check: func(c *Cluster) bool { return c.Subsets == Subsets{} }},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			c := decodeWith[Cluster](t, ClusterType, received, overriding(t, test.overrides))
			if !test.check(c) {
				t.Errorf("the cluster is %+v, with %+v and %+v", c, c.Outliers, c.Retries)
			}
			xdstest.Equal(t, "Changes", test.changes, describeChanges(c.Changes))
			checkIgnored(t, c.Ignored, test.ignored...)
		})
	}
}

// The size of a subset changes where the Cluster has it: of each locality or of a priority.
func TestOverridesOfSubsets(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		given     Subsets
		overrides string
		want      Subsets
	}{
		{Subsets{OfLocality: 5}, `[{"clusters": "*", "subset_size": 7}]`, Subsets{OfLocality: 7}},
		{Subsets{OfPriority: 5}, `[{"clusters": "*", "subset_size": 7}]`, Subsets{OfPriority: 7}},
		{Subsets{OfLocality: 5}, `[{"clusters": "*", "subset_size": null}]`, Subsets{}},
		{Subsets{}, `[{"clusters": "*", "subset_size": 2}]`, Subsets{OfPriority: 2}},
	} {
		c := &Cluster{Subsets: test.given}
		options := overriding(t, test.overrides)
		v := newValidator(options)
		v.overlay.findOverrides(options, typeurl.Cluster, "any")
		if (clusterDecoder{v}).overlaySubsets(c); c.Subsets != test.want || len(c.Changes) != 1 {
			t.Errorf("%+v becomes %+v, want %+v (%v)", test.given, c.Subsets, test.want, describeChanges(c.Changes))
		}
	}
}

// retrying is a RouteConfiguration with a policy for all routes, a route without anything, one with a
// policy and a timeout, and one that does not forward.
func retrying() *routepb.RouteConfiguration {
	one, two := xdsmsg.PathRoute("/a/b", "x"), xdsmsg.PathRoute("/c/d", "x")
	action := two.GetRoute()
	action.RetryPolicy = &routepb.RetryPolicy{RetryOn: "internal", NumRetries: wrapperspb.UInt32(1)}
	action.MaxStreamDuration = &routepb.RouteAction_MaxStreamDuration{
		MaxStreamDuration: durationpb.New(time.Minute), GrpcTimeoutHeaderMax: durationpb.New(30 * time.Second),
	}
	three := &routepb.Route{Match: xdsmsg.Path("/e/f"), Action: &routepb.Route_NonForwardingAction{NonForwardingAction: &routepb.NonForwardingAction{}}}
	host := xdsmsg.VirtualHost("v", []string{"*"}, one, two, three)
	host.RetryPolicy = &routepb.RetryPolicy{RetryOn: "unavailable", RetryBackOff: &routepb.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(time.Second)}}
	return xdsmsg.RouteConfigOf("routes", host)
}

func TestOverridesOfRoutes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, overrides string
		timeouts        string
		codes           []CodeSet
		attempts        []int
		changes         [][]string
		ignored         []note
	}{
		{name: "none", overrides: `[{"routes": "other", "timeout": "3s"}, {"clusters": "*", "subset_size": 3}]`,
			timeouts: "none 30s none", codes: []CodeSet{NewCodeSet(codes.Unavailable), NewCodeSet(codes.Internal)}, attempts: []int{2, 2}, changes: [][]string{nil, nil, nil}},
		{name: "values", overrides: `[{"routes": "routes", "timeout": "3s", "retry_policy": {"retry_on": "unavailable,internal", "num_retries": 3}}]`,
			timeouts: "3s 3s none", codes: []CodeSet{NewCodeSet(codes.Unavailable, codes.Internal), NewCodeSet(codes.Unavailable, codes.Internal)}, attempts: []int{4, 4},
			changes: [][]string{
				{`timeout [0]: none → "3s"`, `retry_policy [0]: {"retry_back_off":{"base_interval":"1s"},"retry_on":"unavailable"} → ` +
					`{"num_retries":3,"retry_back_off":{"base_interval":"1s"},"retry_on":"unavailable,internal"}`},
				{`timeout [0]: "30s" → "3s"`, `retry_policy [0]: {"num_retries":1,"retry_on":"internal"} → {"num_retries":3,"retry_on":"unavailable,internal"}`},
				nil}},
		{name: "null", overrides: `[{"routes": "routes", "timeout": null, "retry_policy": null}]`, timeouts: "none none none",
			changes: [][]string{
				{`retry_policy [0]: {"retry_back_off":{"base_interval":"1s"},"retry_on":"unavailable"} → none`},
				{`timeout [0]: "30s" → none`, `retry_policy [0]: {"num_retries":1,"retry_on":"internal"} → none`},
				nil}},
		{name: "one that does not fit is left out, the next applies",
			overrides: `[{"routes": "*", "retry_policy": {"retry_back_off": {"max_interval": "0.5s"}}}, {"routes": "*", "retry_policy": {"num_retries": 2}}]`,
			timeouts:  "none 30s none", codes: []CodeSet{NewCodeSet(codes.Unavailable), NewCodeSet(codes.Internal)}, attempts: []int{3, 3},
			changes: [][]string{
				{`retry_policy [1]: {"retry_back_off":{"base_interval":"1s"},"retry_on":"unavailable"} → {"num_retries":2,"retry_back_off":{"base_interval":"1s"},"retry_on":"unavailable"}`},
				{`retry_policy [1]: {"num_retries":1,"retry_on":"internal"} → {"num_retries":2,"retry_on":"internal"}`},
				nil},
			ignored: []note{
				{"overrides[0].retry_policy.retry_back_off.max_interval", "the setting stays as received: 500ms is below base_interval, 1s"},
				{"overrides[0].retry_policy.retry_back_off.base_interval", "the setting stays as received: must be set"}}},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			options := overriding(t, test.overrides)
			rc := decodeWith[RouteConfiguration](t, RouteConfigurationType, retrying(), options)
			checkOverridden := func(t *testing.T, rc *RouteConfiguration) {
				t.Helper()
				var timeouts []string
				for i, r := range rc.VirtualHosts[0].Routes {
					timeouts = append(timeouts, "none")
					if r.MaxStreamDuration != nil {
						timeouts[i] = r.MaxStreamDuration.String()
					}
					xdstest.Equal(t, fmt.Sprintf("Changes of route %d", i), test.changes[i], describeChanges(changesOf(r)))
					switch {
					case i == 2, test.codes == nil && r.Retry == nil:
					case test.codes == nil || r.Retry.Codes != test.codes[i] || r.Retry.MaxAttempts != test.attempts[i]:
						t.Errorf("the retry policy of route %d is %+v", i, r.Retry)
					}
				}
				xdstest.Equal(t, "timeouts", test.timeouts, strings.Join(timeouts, " "))
				checkIgnored(t, rc.Ignored, test.ignored...)
			}
			checkOverridden(t, rc)

			// A version that differs in one route is decoded in part, with the same result.
			newer := retrying()
			newer.VirtualHosts[0].Routes[1].Match = xdsmsg.Path("/c/e")
			options.Last = func(string) (any, []byte) { return rc, xdsmsg.Any(retrying()).GetValue() }
			patched := decodeWith[RouteConfiguration](t, RouteConfigurationType, newer, options)
			if same := patched.VirtualHosts[0].Routes[0] == rc.VirtualHosts[0].Routes[0]; same != (test.ignored == nil) {
				t.Errorf("the unchanged route was kept: %v", same)
			}
			checkOverridden(t, patched)

			inline := xdsmsg.InlineListener("routes", retrying())
			l := decodeWith[Listener](t, ListenerType, inline, overriding(t, test.overrides))
			l.RouteConfig.Ignored = l.Ignored
			checkOverridden(t, l.RouteConfig)
		})
	}
}

// A hedge policy is of the route or else of its virtual host, and hedges only with a timeout.
func TestOverridesOfHedging(t *testing.T) {
	t.Parallel()
	timed := &routepb.RetryPolicy{RetryOn: "unavailable", PerTryTimeout: durationpb.New(time.Second)}
	hedges := &routepb.HedgePolicy{HedgeOnPerTryTimeout: true}
	const on, off = `[{"routes": "*", "hedge_policy": {"hedge_on_per_try_timeout": true}}]`, `[{"routes": "*", "hedge_policy": {"hedge_on_per_try_timeout": false}}]`
	for _, test := range []struct {
		name        string
		host, route *routepb.HedgePolicy
		overrides   string
		hedged      bool
		changes     []string
	}{
		{"on", nil, nil, on, true, []string{`hedge_policy [0]: none → {"hedge_on_per_try_timeout":true}`}},
		{"on already", hedges, nil, on, true, nil},
		{"off, of the host", hedges, nil, off, false, []string{`hedge_policy [0]: {"hedge_on_per_try_timeout":true} → {}`}},
		{"off, of the route", nil, hedges, off, false, []string{`hedge_policy [0]: {"hedge_on_per_try_timeout":true} → {}`}},
		{"removed", nil, hedges, `[{"routes": "*", "hedge_policy": null}]`, false, []string{`hedge_policy [0]: {"hedge_on_per_try_timeout":true} → none`}},
		{"on, with a timeout that another override removes", nil, nil, `[{"routes": "*", "retry_policy": {"per_try_timeout": null}}, ` + on[1:], false, []string{
			`retry_policy [0]: {"per_try_timeout":"1s","retry_on":"unavailable"} → {"retry_on":"unavailable"}`,
			`hedge_policy [1]: none → {"hedge_on_per_try_timeout":true}`}},
	} {
		xdstest.Parallel(t, test.name, func(t *testing.T) {
			route := xdsmsg.PathRoute("/a/b", "x")
			route.GetRoute().RetryPolicy, route.GetRoute().HedgePolicy = timed, test.route
			host := xdsmsg.VirtualHost("v", []string{"*"}, route)
			host.HedgePolicy = test.host
			r := decodeWith[RouteConfiguration](t, RouteConfigurationType, xdsmsg.RouteConfigOf("routes", host), overriding(t, test.overrides)).VirtualHosts[0].Routes[0]
			if hedged := r.Retry.Hedges; hedged != test.hedged {
				t.Errorf("hedged: %v", hedged)
			}
			xdstest.Equal(t, "Changes", test.changes, describeChanges(changesOf(r)))
		})
	}
}

// The override has no say in the answer to the server: what is wrong with a received setting is
// a reason for a NACK even if the override replaces it, and faults are those of the resource.
func TestOverridesDoNotMendResources(t *testing.T) {
	t.Parallel()
	c := xdsmsg.EDSCluster("c", "")
	c.OutlierDetection = &clusterpb.OutlierDetection{MaxEjectionPercent: wrapperspb.UInt32(101)}
	options := overriding(t, `[{"clusters": "*", "outlier_detection": null, "subset_size": 3}]`)
	xdstest.Equal(t, "faults", []fault{{"outlier_detection.max_ejection_percent", "must be at most 100, is 101"}}, decodeFaults(t, ClusterType, c, options))
}

// Nor are the regular expressions of an override too many for the resource.
func TestRegexesOfOverrides(t *testing.T) {
	t.Parallel()
	const large = "(abcdefghijklmnopqrstuvwxyzabcdefghijklmnop){900}"
	var routes []*routepb.Route
	var headers []string
	for i := range 15 {
		routes = append(routes, xdsmsg.Route(regexMatch(strings.Repeat("x", i)+large), xdsmsg.ToCluster("a")))
		headers = append(headers, fmt.Sprintf(`{"name": "h", "string_match": {"safe_regex": {"regex": %q}}}`, strings.Repeat("y", i)+large))
	}
	options := overriding(t, fmt.Sprintf(`[{"routes": "*", "retry_policy": {"retry_on": "retriable-headers", "retriable_headers": [%s]}}]`, strings.Join(headers, ", ")))
	rc := decodeWith[RouteConfiguration](t, RouteConfigurationType, routeConfig(routes...), options)
	if r := rc.VirtualHosts[0].Routes[14]; r.Retry == nil || len(r.Retry.RetriableHeaders) != 15 {
		t.Errorf("the retry policy is %+v", r.Retry)
	}
}

func TestFaultsOfOverrides(t *testing.T) {
	t.Parallel()
	const known = `; it can be outlier_detection, circuit_breakers, subset_size`
	const pattern = `expected a name such as "orders", or a pattern such as "orders-*", found `
	for _, test := range []struct {
		given string
		want  []string
	}{
		{`{}`, []string{`overrides: expected a list of overrides, found an object`}},
		{`[1]`, []string{`overrides[0]: expected an object, found a number`}},
		{`[{"outlier_detection": null}]`, []string{`overrides[0]: expected a pattern of names under clusters or routes, found neither`}},
		{`[{"clusters": "a", "routes": "a"}]`, []string{`overrides[0].routes: expected either clusters or routes, found both`}},
		{`[{"clusters": "a"}]`, []string{`overrides[0]: expected something to change, such as outlier_detection, found nothing`}},
		{`[{"clusters": "", "subset_size": 1}]`, []string{`overrides[0].clusters: ` + pattern + `an empty string`}},
		{`[{"clusters": null, "subset_size": 1}]`, []string{`overrides[0].clusters: ` + pattern + `null`}},
		{`[{"clusters": "a*b*", "subset_size": 1}]`, []string{`overrides[0].clusters: expected a pattern with at most one *, found "a*b*"`}},

		// Patterns that can match no name.
		{`[{"clusters": "xdstp://b/envoy.config.cluster.v3.Cluster/*", "subset_size": 1}, {"clusters": "xdstp://b/*", "subset_size": 1}]`, []string{
			`overrides[0].clusters: the pattern can match no name: the bootstrap has no authority "b"`,
			`overrides[1].clusters: the pattern can match no name: the bootstrap has no authority "b"`}},
		{`[{"clusters": "xdstp://a/envoy.config.listener.v3.Listener/*", "subset_size": 1}]`, []string{
			`overrides[0].clusters: the pattern can match no name: it is for type "envoy.config.listener.v3.Listener", and clusters have envoy.config.cluster.v3.Cluster`}},
		{`[{"routes": "xdstp://a/envoy.config.cluster.v3.Cluster/x", "timeout": "1s"}]`, []string{
			`overrides[0].routes: the pattern can match no name: it is for type "envoy.config.cluster.v3.Cluster", and routes have envoy.config.route.v3.RouteConfiguration or envoy.config.listener.v3.Listener`}},
		{`[{"clusters": "xdstp://a/envoy.config.cluster.v3.Cluster", "subset_size": 1}]`, []string{
			`overrides[0].clusters: the pattern can match no name: expected xdstp://AUTHORITY/TYPE/ID, found no id`}},

		// Settings.
		{`[{"clusters": "a", "subset": 1, "lb": 2}]`, []string{`overrides[0].subset: unknown key` + known, `overrides[0].lb: unknown key` + known}},
		{`[{"clusters": "a", "outlier_detecton": null}]`, []string{`overrides[0].outlier_detecton: unknown key; did you mean "outlier_detection"?`}},
		{`[{"clusters": "a", "timeout": "1s"}]`, []string{`overrides[0].timeout: is a setting of routes, and the override is for clusters`}},
		{`[{"clusters": "a", "transport_socket": null, "tls": false}]`, []string{
			`overrides[0].transport_socket: an override cannot change the security of connections, which only the control plane and the program's credentials decide`,
			`overrides[0].tls: an override cannot change the security of connections, which only the control plane and the program's credentials decide`}},
		{`[{"clusters": "a", "circuit_breakers": 3}]`, []string{`overrides[0].circuit_breakers: expected an object, found a number`}},
		{`[{"clusters": "a", "circuit_breakers": {}}]`, []string{`overrides[0].circuit_breakers: expected at least one field of Thresholds, or null, found an empty object`}},
		{`[{"clusters": "a", "circuit_breakers": {"max_request": 1, "retry_budget": {"budget": 1}}}]`, []string{
			`overrides[0].circuit_breakers.max_request: Thresholds has no such field; did you mean "max_requests"?`,
			`overrides[0].circuit_breakers.retry_budget.budget: RetryBudget has no such field; it can be budget_percent, budget_interval, min_retry_concurrency`}},
		{`[{"clusters": "a", "circuit_breakers": {"max_requests": -1, "retry_budget": null}, "subset_size": "x"}]`, []string{
			`overrides[0].circuit_breakers.max_requests: expected an integer from 0 to 4294967295, found a number`,
			`overrides[0].subset_size: expected an integer from 0 to 4294967295, found a string`}},
		{`[{"routes": "a", "timeout": 3, "retry_policy": {"per_try_timeout": "x", "retry_on": 1, "retry_host_predicate": [{"nam": "x"}]}}]`, []string{
			`overrides[0].timeout: expected a duration such as "1.5s", found a number`,
			`overrides[0].retry_policy.per_try_timeout: expected a duration such as "1.5s", found a string`,
			`overrides[0].retry_policy.retry_on: expected a string, found a number`,
			`overrides[0].retry_policy.retry_host_predicate: expected RetryPolicy.retry_host_predicate in the JSON form of protobuf: unknown field "nam"`}},
		{`[{"clusters": "a", "outlier_detection": {"split_external_local_origin_errors": "x"}}]`, []string{
			`overrides[0].outlier_detection.split_external_local_origin_errors: expected true or false, found a string`}},

		// Values that no resource may have, and fields that the client does not act on.
		{`[{"clusters": "a", "subset_size": 0}, {"routes": "a", "timeout": "-1s"}]`, []string{
			`overrides[0].subset_size: must be greater than 0`, `overrides[1].timeout: is negative: -1s`}},
		{`[{"clusters": "a", "outlier_detection": {"max_ejection_percent": 200, "always_eject_one_host": true}}]`, []string{
			`overrides[0].outlier_detection.max_ejection_percent: must be at most 100, is 200`,
			`overrides[0].outlier_detection.always_eject_one_host: this client does not act on the field`}},
		{`[{"routes": "a", "retry_policy": {"num_retries": 0, "retry_on": "nothing", "retry_back_off": {"base_interval": "2s", "max_interval": "1s"}}}]`, []string{
			`overrides[0].retry_policy.num_retries: must be at least 1`,
			`overrides[0].retry_policy.retry_back_off.max_interval: 1s is below base_interval, 2s`,
			`overrides[0].retry_policy.retry_on: this client does not support "nothing"`}},
		{`[{"routes": "a", "hedge_policy": {"hedge_on_per_try_timeout": 1, "hedge": true}}]`, []string{
			`overrides[0].hedge_policy.hedge_on_per_try_timeout: expected true or false, found a number`,
			`overrides[0].hedge_policy.hedge: HedgePolicy has no such field; it can be initial_requests, additional_request_chance, hedge_on_per_try_timeout`}},
		{`[{"routes": "b", "timeout": "1s"}, {"routes": "a", "hedge_policy": {"initial_requests": 2}}]`, []string{
			`overrides[1].hedge_policy.initial_requests: this client does not act on the field`}},
		{`[{"routes": "a", "retry_policy": {"rate_limited_retry_back_off": {"reset_headers": []}}}]`, []string{
			`overrides[0].retry_policy.rate_limited_retry_back_off.reset_headers: must not be empty`}},

		// What may fit a resource is none.
		{`[{"routes": "a*", "retry_policy": {"retry_back_off": {"max_interval": "1s"}}}, {"clusters": "xdstp://*", "subset_size": 3}, null]`, []string{
			`overrides[2]: expected an object, found null`}},
	} {
		_, err := parseOverrides(test.given)
		if err == nil {
			t.Errorf("%s has no fault", test.given)
			continue
		}
		var got []string
		for _, f := range err.(*bootstrap.Faults).List {
			got = append(got, f.String())
		}
		xdstest.Equal(t, "faults of "+test.given, test.want, got)
	}
	for _, good := range []string{`null`, `[]`, `[{"clusters": "*", "outlier_detection": null}]`, `[{"routes": "xdstp://a/*", "timeout": "0s"}]`} {
		if _, err := parseOverrides(good); err != nil {
			t.Error(err)
		}
	}
}

// Given names of xRFC TP1, then a pattern and a name match in whatever spelling.
func TestOverridesOfNewStyleNames(t *testing.T) {
	t.Parallel()
	config := overriding(t, `[{"clusters": "xdstp://a/envoy.config.cluster.v3.Cluster/%6frders?b=1&a=2", "subset_size": 1},
		{"clusters": "xdstp://a/envoy.config.cluster.v3.Cluster/shop/*", "subset_size": 1}, {"clusters": "xdstp://a/*", "subset_size": 1}]`).Bootstrap
	for name, want := range map[string]string{
		"xdstp://a/envoy.config.cluster.v3.Cluster/orders?a=2&b=1": "[0 2]",
		"xdstp://a/envoy.config.cluster.v3.Cluster/shop/carts":     "[1 2]",
		"xdstp://b/envoy.config.cluster.v3.Cluster/shop/carts":     "[]",
		"orders": "[]",
	} {
		got := []int{}
		for _, o := range config.Overrides.For(typeurl.Cluster, name) {
			got = append(got, o.Index)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s matches overrides %v, want %v", name, got, want)
		}
	}
}

// Clients whose bootstraps override different things are not shared.
func TestOverridesAreInTheFingerprint(t *testing.T) {
	t.Parallel()
	fingerprint := func(overrides string) string { return overriding(t, overrides).Bootstrap.Fingerprint() }
	a := fingerprint(`[{"clusters": "a", "subset_size": 3}]`)
	if a == fingerprint(`[{"clusters": "a", "subset_size": 4}]`) || a == fingerprint(`[]`) {
		t.Error("different overrides have the same fingerprint")
	}
	if a != fingerprint(`[ {"subset_size":3,  "clusters":"a"} ]`) || fingerprint(`[]`) != fingerprint(`null`) {
		t.Error("the same overrides have different fingerprints")
	}
}
