package folder_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/folder"
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
			"retry: {on: [unavailable, internal], attempts: 2, backoff: {base: 25ms, max: 1s}}\ntimeout: 1.5s", "",
			`retry_policy:{retry_on:"unavailable,internal" num_retries:{value:2} retry_back_off:{base_interval:{nanos:25000000} max_interval:{seconds:1}}} max_stream_duration:{max_stream_duration:{seconds:1 nanos:500000000}}`,
		},
	} {
		d := newDir(t)
		d.write("a.yaml", frontend+test.text+"\n")
		s := read(t, folder.New(d.path)).Services[0]
		cluster, route := compact(prototext.MarshalOptions{}.Format(s.Cluster)), compact(prototext.MarshalOptions{}.Format(s.Route))
		if cluster != compact(test.cluster) || route != compact(test.route) {
			t.Errorf("%s gives the Cluster\n%s\nand the routes\n%s", test.text, cluster, route)
		}
	}
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
		"loadBalancing: {policy: RingHash, hashOn: [{}]}":                         `loadBalancing.hashOn[0]: this is not what requests can be hashed by`,
		"loadBalancing: {policy: RingHash, hashOn: [{header: a, channel: true}]}": `this is not what requests can be hashed by`,
		"outlierDetection: {intervall: 5s}":                                       `a.yaml:3: outlierDetection: unknown field "intervall"`,
		"circuitBreakers: {}":                                                     `circuitBreakers: the field "maxRequests" is missing`,
		"retry: {attempts: 2}":                                                    `retry: the field "on" is missing`,
		"retry: {on: [UNAVAILABLE]}":                                              `retry.on[0]: unknown value "UNAVAILABLE"`,
		"retry: {on: []}":                                                         `retry.on: RPCs are retried for no status`,
		"retry: {on: [internal], backoff: {base: 2s, max: 1s}}":                   `retry.backoff.max: max is shorter than base`,
		"timeout: -1s": `a.yaml:3: timeout: "-1s" is no duration above 0; write it like 1.5s or 250ms`,
		"timeout: 5":   `timeout: expected a string, found the number "5"`,
	} {
		d := newDir(t)
		d.write("a.yaml", frontend+text+"\n")
		if _, err := folder.New(d.path).Read(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %s", text, err, want)
		}
	}
}
