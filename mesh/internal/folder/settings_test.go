package folder_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
)

// What a Service document says about its Clusters and routes, in the fields of xDS.
func TestReadsSettings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, cluster, route string }{
		{"loadBalancing: {policy: RoundRobin}", "", ""},
		{"loadBalancing: {policy: LeastRequest, choiceCount: 3}", "lb_policy:LEAST_REQUEST least_request_lb_config:{choice_count:{value:3}}", ""},
		{
			"loadBalancing: {policy: RingHash, minRingSize: 10, maxRingSize: 20, hashOn: [{header: User}, {channel: true}]}",
			"lb_policy:RING_HASH ring_hash_lb_config:{minimum_ring_size:{value:10} maximum_ring_size:{value:20}}",
			`hash_policy:{header:{header_name:"user"}} hash_policy:{filter_state:{key:"io.grpc.channel_id"}}`,
		},
		{"outlierDetection: {interval: 5s, failure_percentage_threshold: 50}", "outlier_detection:{interval:{seconds:5} failure_percentage_threshold:{value:50}}", ""},
		{"circuitBreakers: {maxRequests: 100}", "circuit_breakers:{thresholds:{max_requests:{value:100}}}", ""},
		{
			"loadBalancing: {policy: RoundRobin, slowStart: {window: 30s, aggression: 2, minWeightPercent: 5}}",
			`round_robin_lb_config:{slow_start_config:{slow_start_window:{seconds:30} aggression:{default_value:2 runtime_key:"dynxds.slow_start.aggression"} min_weight_percent:{value:5}}}`, "",
		},
		{"loadBalancing: {policy: LeastRequest, slowStart: {window: 1s}}", "lb_policy:LEAST_REQUEST least_request_lb_config:{slow_start_config:{slow_start_window:{seconds:1}}}", ""},
		{
			"loadBalancing: {policy: Maglev, tableSize: 11, hashOn: [{header: user}]}",
			policies(maglevPolicy+"{table_size:{value:11}}", ringPolicy+"{hash_function:XX_HASH}"), `hash_policy:{header:{header_name:"user"}}`,
		},
		{"loadBalancing: {policy: Random}", policies(randomPolicy+"{}", inLocality(roundRobinPolicy+"{}")), ""},
		{"loadBalancing: {policy: WeightedRoundRobin}", policies(inLocality(weightedPolicy+"{}", roundRobinPolicy+"{}")), ""},
		{
			"loadBalancing: {policy: RoundRobin, subsetSize: 3}",
			policies(subsetPolicy+"{subset_size:{value:3} child_policy:{"+entries(inLocality(roundRobinPolicy+"{}"))+"}}", randomPolicy+"{}", inLocality(roundRobinPolicy+"{}")), "",
		},
		{
			"loadBalancing: {policy: RingHash, minRingSize: 5, subsetSize: 3}",
			policies(subsetPolicy+"{subset_size:{value:3} child_policy:{"+entries(ringPolicy+"{hash_function:XX_HASH minimum_ring_size:{value:5}}")+"}}", ringPolicy+"{hash_function:XX_HASH minimum_ring_size:{value:5}}"), "",
		},
		{
			"circuitBreakers: {maxRetries: 2}", "circuit_breakers:{thresholds:{max_retries:{value:2}}}", "",
		},
		{
			"circuitBreakers: {maxRequests: 9, retryBudget: {percent: 12.5, minConcurrency: 4}}",
			"circuit_breakers:{thresholds:{max_requests:{value:9} retry_budget:{budget_percent:{value:12.5} min_retry_concurrency:{value:4}}}}", "",
		},
		{
			"healthCheck: {service: a.B, interval: 3s}",
			`health_checks:{timeout:{seconds:1} interval:{seconds:3} unhealthy_threshold:{value:3} healthy_threshold:{value:1} grpc_health_check:{service_name:"a.B"}}`, "",
		},
		{"loadReporting: true", "lrs_server:{self:{}}", ""},
		{"loadReporting: false", "", ""},
		{"localities: [{zone: a, weight: 3}]", "common_lb_config:{locality_weighted_lb_config:{}}", ""},
		{"sessionAffinity: {header: x, statuses: [Healthy, Draining]}", "common_lb_config:{override_host_status:{statuses:HEALTHY statuses:DRAINING}}", ""},
		{"sessionAffinity: {cookie: {name: x}}", "", ""},
		{
			"retry: {on: [reset, unavailable], perTryTimeout: 1s, perTryIdleTimeout: 2s, hostSelectionAttempts: 3}", "",
			`retry_policy:{retry_on:"reset,unavailable" per_try_timeout:{seconds:1} per_try_idle_timeout:{seconds:2} retry_host_predicate:{name:"envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate" ` +
				`typed_config:{[type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate]:{}}} host_selection_retry_max_attempts:3}`,
		},
		{"retry: {perTryTimeout: 1s}", "", "retry_policy:{per_try_timeout:{seconds:1}}"},
		{
			"retry: {on: [unavailable, internal], attempts: 2, backoff: {base: 25ms, max: 1s}}\ntimeout: 1.5s", "",
			`retry_policy:{retry_on:"unavailable,internal" num_retries:{value:2} retry_back_off:{base_interval:{nanos:25000000} max_interval:{seconds:1}}} max_stream_duration:{max_stream_duration:{seconds:1 nanos:500000000}}`,
		},
	} {
		d := newDir(t, "a.yaml", frontend+test.text+"\n")
		s := d.content().Services[0]
		cluster, route := compact(prototext.MarshalOptions{}.Format(s.Cluster)), compact(prototext.MarshalOptions{}.Format(s.Route))
		if cluster != compact(test.cluster) || route != compact(test.route) {
			t.Errorf("%s gives the Cluster\n%s\nand the routes\n%s", test.text, cluster, route)
		}
	}
}

// The names of policies in the text of load_balancing_policy.
const (
	roundRobinPolicy = "round_robin.v3.RoundRobin"
	randomPolicy     = "random.v3.Random"
	ringPolicy       = "ring_hash.v3.RingHash"
	maglevPolicy     = "maglev.v3.Maglev"
	weightedPolicy   = "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin"
	subsetPolicy     = "random_subsetting.v3.RandomSubsetting"
)

func policies(list ...string) string { return "load_balancing_policy:{" + entries(list...) + "}" }

func inLocality(list ...string) string {
	return "wrr_locality.v3.WrrLocality{endpoint_picking_policy:{" + entries(list...) + "}}"
}

// entries returns the text of policies, each its name and then its configuration.
func entries(list ...string) string {
	var text strings.Builder
	for _, p := range list {
		name, config, _ := strings.Cut(p, "{")
		name = "envoy.extensions.load_balancing_policies." + name
		text.WriteString(`policies:{typed_extension_config:{name:"` + name + `" typed_config:{[type.googleapis.com/` + name + "]:{" + config + "}}}")
	}
	return text.String()
}

// compact removes blanks, which prototext chooses at random.
func compact(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, " ", ""), "<nil>", "")
}

func TestFaultySettings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"loadBalancing: {policy: RingHsh}":                                        `a.yaml:3: loadBalancing.policy: unknown value "RingHsh"; did you mean "RingHash"?`,
		"loadBalancing: {}":                                                       `the field "policy" is missing`,
		"loadBalancing: {policy: RoundRobin, choiceCount: 2}":                     `loadBalancing.choiceCount: this is for the policy LeastRequest`,
		"loadBalancing: {policy: RingHash, minRingSize: 2, maxRingSize: 1}":       `loadBalancing.maxRingSize: the largest ring is smaller than the smallest`,
		"loadBalancing: {policy: RingHash, hashOn: [{}]}":                         `loadBalancing.hashOn[0]: requests cannot be hashed by this`,
		"loadBalancing: {policy: RingHash, hashOn: [{header: a, channel: true}]}": `requests cannot be hashed by this`,
		"outlierDetection: {intervall: 5s}":                                       `a.yaml:3: outlierDetection: unknown field "intervall"`,
		"circuitBreakers: {}":                                                     `circuitBreakers: there is no limit; add maxRequests, maxRetries or retryBudget`,
		"loadBalancing: {policy: Maglev, tableSize: 10}":                          `loadBalancing: clients would reject it`,
		"loadBalancing: {policy: Maglev, minRingSize: 10}":                        `loadBalancing.minRingSize: this is for the policy RingHash`,
		"loadBalancing: {policy: Random, slowStart: {window: 1s}}":                `loadBalancing.slowStart: this is for the policy RoundRobin or LeastRequest`,
		"loadBalancing: {policy: RoundRobin, slowStart: {}}":                      `loadBalancing.slowStart: the field "window" is missing`,
		"loadBalancing: {policy: RoundRobin, slowstart: {}}":                      `unknown field "slowstart"; did you mean "slowStart"?`,
		"loadBalancing: {policy: RoundRobin, subsetSize: 0}":                      `loadBalancing.subsetSize: expected an integer from 1`,
		"outlierDetection: {max_ejection_percent: 101}":                           `a.yaml:3: outlierDetection: clients would reject it`,
		"circuitBreakers: {maxRetries: 1, retryBudget: {percent: 20}}":            `circuitBreakers.maxRetries: a retryBudget replaces maxRetries`,
		"circuitBreakers: {retryBudget: {percent: 101}}":                          `circuitBreakers.retryBudget.percent: expected a number from 0 to 100`,
		"healthCheck: {intervall: 1s}":                                            `unknown field "intervall"; did you mean "interval"?`,
		"healthCheck: {unhealthyThreshold: 0}":                                    `healthCheck.unhealthyThreshold: expected an integer from 1`,
		"loadReporting: self":                                                     `loadReporting: expected true or false`,
		"sessionAffinity: {}":                                                     `sessionAffinity: a session is identified by a cookie or by a header`,
		"sessionAffinity: {cookie: {name: a}, header: b}":                         `sessionAffinity: a session is identified by a cookie or by a header`,
		"sessionAffinity: {cookie: {name: ''}}":                                   `sessionAffinity.cookie.name: expected the name of a cookie`,
		"sessionAffinity: {header: 'a b'}":                                        `sessionAffinity.header: sessions cannot be identified by the header "a b": gRPC does not allow a character in the name`,
		"sessionAffinity: {header: user-agent}":                                   `sessionAffinity.header: sessions cannot be identified by the header "user-agent": gRPC fills this header in; use another name`,
		"sessionAffinity: {cookie: {name: 'a;b'}}":                                `sessionAffinity.cookie.name: "a;b" cannot be the name of a cookie`,
		"sessionAffinity: {cookie: {name: a, path: '/a;b'}}":                      `sessionAffinity.cookie.path: "/a;b" cannot be the path of a cookie`,
		"loadBalancing: {policy: Maglev, hashOn: [{header: ''}]}":                 `loadBalancing.hashOn[0].header: "" cannot be the name of a header`,
		"sessionAffinity: {header: a, statuses: [Unhealthy]}":                     `sessionAffinity.statuses[0]: unknown value "Unhealthy"`,
		"localities: [{zone: a}]":                                                 `localities[0]: the field "weight" is missing`,
		"localities: [{zone: a, weight: 1}, {zone: a, weight: 2}]":                `localities[1]: the locality has a weight already`,
		"retry: {on: [unavailable], perTryTimout: 1s}":                            `unknown field "perTryTimout"; did you mean "perTryTimeout"?`,
		"retry: {on: [unavailable], hostSelectionAttempts: 101}":                  `retry.hostSelectionAttempts: expected an integer from 1 to 100`,
		"retry: {attempts: 2}":                                                    `retry: the field "on" is missing`,
		"retry: {on: [UNAVAILABLE]}":                                              `retry.on[0]: unknown value "UNAVAILABLE"`,
		"retry: {on: []}":                                                         `retry.on: no status is retried`,
		"retry: {on: [internal], backoff: {base: 2s, max: 1s}}":                   `retry.backoff.max: max is shorter than base`,
		"timeout: -1s": `a.yaml:3: timeout: "-1s" is not a duration above 0; write it like 1.5s or 250ms`,
		"timeout: 5":   `timeout: expected a string, found the number "5"`,
	} {
		newDir(t, "a.yaml", frontend+text+"\n").rejected(text, want)
	}
}
