package e2e_test

import (
	"slices"
	"strings"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// retriedRoute is a route to the cluster with the policy, which gets a backoff of 1 ms.
func retriedRoute(cluster, policy string) *routepb.Route {
	return with(toCluster(cluster), `route { retry_policy { %s retry_back_off { base_interval { nanos: 1000000 } } } }`, policy)
}

// eachKindThatEndsItsRequest is eachKind without the stream that waits for an answer before the
// end of its request: per-try timeouts begin then.
func eachKindThatEndsItsRequest(t *testing.T, test func(t *testing.T, k kind)) {
	eachKind(t, func(t *testing.T, k kind) {
		if k != bidiStreaming {
			test(t, k)
		}
	})
}

// Envoy, RetryPolicy.retry_host_predicate, previous_hosts: a retry goes to a backend that the RPC
// was not sent to yet.
func TestRetriesAvoidPreviousHostsEndToEnd(t *testing.T) {
	t.Parallel()
	inOneWay(t, "attempts are spread over the same endpoints")
	m := newMesh(t)
	all := backends(t, "b0", "b1", "b2")
	m.set(chain(service, retriedRoute("c", `retry_on: "unavailable" num_retries { value: 2 } host_selection_retry_max_attempts: 20
		retry_host_predicate { name: "previous" typed_config {
			[type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate] {}
		} }`)), clusterOf("c", all...))
	cc := m.dial("xds:///" + service)
	reachAll(t, cc, all...)
	for _, b := range all {
		b.Fail(testutils.TrailersOnly(status.Error(codes.Unavailable, "not here")))
	}
	eachKind(t, func(t *testing.T, k kind) {
		for range 20 {
			var picks []string
			ctx := dynxds.WithTrace(testutils.Context(t), &dynxds.Trace{Picked: func(p dynxds.TracePick) { picks = append(picks, p.Endpoint) }})
			checkStatus(t, callFor(ctx, cc, k).err, codes.Unavailable, "not here")
			slices.Sort(picks)
			if n := len(slices.Compact(picks)); n != 3 {
				t.Fatalf("the attempts went to %d of the 3 backends", n)
			}
		}
	})
}

// gRFC A96: the retries of each RPC that was retried, and how long it waited for them; "If there
// were no retries, 0 is not reported".
func TestMetricsOfRetries(t *testing.T) {
	t.Parallel()
	inOneWay(t, "the resources stay the same")
	m, backend, recorder := newMesh(t), testutils.StartBackend(t, "b"), newPolicyMeter()
	m.serveRoute(retriedRoute("b", `retry_on: "unavailable" num_retries { value: 4 }`), backend)
	cc := m.dial("xds:///"+service, grpc.WithStatsHandler(recorder))
	labels := func(method string) string {
		return " grpc.method=" + strings.TrimPrefix(method, "/") + " grpc.target=xds:///" + service
	}
	want := make(map[string]int64)
	for _, k := range kinds {
		for _, retries := range []int32{0, 2, 3} {
			failTimes(backend, retries)
			xdstest.NoError(t, callFor(testutils.Context(t), cc, k).err)
			if method := backend.Last().Method; retries > 0 {
				want["retries"+labels(method)] += int64(retries)
				want["retry_delay"+labels(method)]++
			}
		}
	}
	recorder.expect(t, "grpc.client.call.", want)
}
