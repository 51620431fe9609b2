package interop_test

import (
	"fmt"
	"strings"
	"testing"

	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/dynxds/dynxds/testutils"
)

// Clients of gRPC-Go's xds and of dynxds accept every setting that a service or a route of the folder may have, and
// their RPCs succeed: settings that a client does not support are left out for it.
func TestGRPCGoAcceptsEverySetting(t *testing.T) {
	t.Parallel()
	settings := []string{
		"loadBalancing: {policy: LeastRequest, choiceCount: 3, slowStart: {window: 1s}}", "loadBalancing: {policy: RoundRobin, slowStart: {window: 1s, aggression: 2}}",
		"loadBalancing: {policy: RingHash, minRingSize: 10, hashOn: [{header: user}]}", "loadBalancing: {policy: Maglev, tableSize: 11, hashOn: [{channel: true}]}",
		"loadBalancing: {policy: Random}", "loadBalancing: {policy: WeightedRoundRobin}", "loadBalancing: {policy: RoundRobin, subsetSize: 1}",
		"loadBalancing: {policy: LeastRequest, subsetSize: 1}", "loadBalancing: {policy: Maglev, subsetSize: 1}",
		"localities: [{zone: a, weight: 3}]", "outlierDetection: {consecutive_5xx: 5, max_ejection_time_jitter: 1s}", "circuitBreakers: {maxRequests: 10, retryBudget: {percent: 10}}",
		"healthCheck: {}", "sessionAffinity: {cookie: {name: session, path: /}, statuses: [Healthy, Draining]}", "sessionAffinity: {header: x-session}", "loadReporting: true",
		"retry: {on: [unavailable, reset], attempts: 2, perTryTimeout: 10s, perTryIdleTimeout: 10s, hostSelectionAttempts: 3}\ntimeout: 1h",
	}
	rules := []string{
		"timeouts: {request: 1h, backendRequest: 1m}", "retry: {codes: [500, 503], attempts: 3, backoff: 10ms}", "sessionPersistence: {}",
		"backendRefs: [{name: s0, port: 80, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: b}]}}]}]",
	}
	backend := testutils.StartBackend(t, "only")
	var text strings.Builder
	service := func(name, settings string) {
		fmt.Fprintf(&text, "kind: Service\nname: %s\n%s\nendpoints: [{address: %q, locality: {zone: a}}]\n---\n", name, settings, backend.Addr())
	}
	for i, setting := range settings {
		service(fmt.Sprint("s", i), setting)
	}
	for i, rule := range rules {
		service(fmt.Sprint("r", i), "")
		if !strings.HasPrefix(rule, "backendRefs") {
			rule += fmt.Sprintf("\n    backendRefs: [{name: r%d, port: 80}]", i)
		}
		fmt.Fprintf(&text, "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: r%d}\nspec:\n  parentRefs: [{group: \"\", kind: Service, name: r%d}]\n  rules:\n  - %s\n---\n", i, i, rule)
	}
	f := serveFolder(t, map[string]string{"all.yaml": text.String()})
	for _, kind := range servedKinds {
		b := f.builder(kind, "frontend", "v1")
		call := func(name, what string) {
			rpcs := testpb.NewTestServiceClient(dial(t, b, kind.target(name)))
			if _, err := rpcs.UnaryCall(testutils.Context(t), &testpb.SimpleRequest{}); err != nil {
				t.Errorf("%v: an RPC to a service with %s fails: %v", kind, what, err)
			}
		}
		for i, setting := range settings {
			call(fmt.Sprint("s", i), setting)
		}
		for i, rule := range rules {
			call(fmt.Sprint("r", i), rule)
		}
	}
}
