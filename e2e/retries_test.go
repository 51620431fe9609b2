package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
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

// Envoy, RetryPolicy.per_try_timeout: an attempt that hangs is retried, and the last one is
// bounded too.
func TestPerTryTimeoutEndToEnd(t *testing.T) {
	inOneWay(t, "attempts time out at the backend")
	t.Parallel()
	for name, conditions := range map[string]string{"a status code": "deadline-exceeded", "a reset": "5xx"} {
		xdstest.Parallel(t, name, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b")
			m.serveRoute(retriedRoute("b", fmt.Sprintf(`retry_on: %q num_retries { value: 4 } per_try_timeout { seconds: 1 }`, conditions)), backend)
			cc := m.dial("xds:///" + service)
			eachKindThatEndsItsRequest(t, func(t *testing.T, k kind) {
				var n atomic.Int32
				backend.SetBehaviour(func(ctx context.Context, _ testutils.RPC) error {
					if n.Add(1) == 1 {
						<-ctx.Done()
					}
					return nil
				})
				if r := callFor(testutils.Context(t), cc, k); r.err != nil || n.Load() < 2 {
					t.Errorf("%d attempts: %v", n.Load(), r.err)
				}
			})
		})
	}
	xdstest.Parallel(t, "the last attempt", func(t *testing.T) {
		m, backend := newMesh(t), testutils.StartBackend(t, "b")
		m.serveRoute(retriedRoute("b", `retry_on: "deadline-exceeded" per_try_timeout { nanos: 100000000 }`), backend)
		cc := m.dial("xds:///" + service)
		eachKindThatEndsItsRequest(t, func(t *testing.T, k kind) {
			backend.SetBehaviour(untilTheEnd)
			var log rpcLog
			ctx := dynxds.WithTrace(testutils.Context(t), &dynxds.Trace{
				AttemptEnded: func(a dynxds.TraceAttempt) { log.add("%s", status.Convert(a.Err).Message()) },
				Retried:      func(dynxds.TraceRetry) { log.add("retry") },
			})
			checkStatus(t, callFor(ctx, cc, k).err, codes.DeadlineExceeded, "attempt 2 of the RPC was not answered for 100ms, the per_try_timeout")
			log.Change(func() {
				if l := log.lines; len(l) != 3 || !strings.Contains(l[0], "attempt 1") || l[1] != "retry" || !strings.Contains(l[2], "attempt 2") {
					t.Errorf("the trace: %q", l)
				}
			})
		})
	})
}

// Envoy, retry_on connect-failure: the RPC is retried until there is a connection.
func TestRetryOnConnectFailureEndToEnd(t *testing.T) {
	t.Parallel()
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	m.serveRoute(retriedRoute("b", `retry_on: "connect-failure" num_retries { value: 4 }`), backend)
	cc := m.dial("xds:///" + service)
	mustReach(t, cc, unary, backend)
	backend.Stop()
	untilError(t, cc, []string{"no endpoint of cluster"})
	eachKind(t, func(t *testing.T, k kind) {
		var retries atomic.Int32
		ctx := dynxds.WithTrace(testutils.Context(t), &dynxds.Trace{Retried: func(dynxds.TraceRetry) { retries.Add(1) }})
		_, err := call(ctx, cc, k)
		checkStatus(t, err, codes.Unavailable, "no endpoint of cluster")
		if retries.Load() != 4 {
			t.Errorf("%d retries, want 4", retries.Load())
		}
	})
}

// Envoy, CircuitBreakers.Thresholds.max_retries: the retry over the limit is not made, and the RPC
// ends as its last attempt did.
func TestRetriesOverTheLimitEndToEnd(t *testing.T) {
	t.Parallel()
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	cc := m.dialServing(chain(service, retriedRoute("b", `retry_on: "unavailable"`)), endpointsOf("b", backend),
		with(xdsmsg.EDSCluster("b", ""), `circuit_breakers { thresholds { max_retries { value: 0 } } }`))
	eachKind(t, func(t *testing.T, k kind) {
		n := failTimes(backend, 100)
		var last atomic.Pointer[dynxds.TraceAttempt]
		ctx := dynxds.WithTrace(testutils.Context(t), &dynxds.Trace{AttemptEnded: func(a dynxds.TraceAttempt) { last.Store(&a) }})
		err := callFor(ctx, cc, k).err
		checkStatus(t, err, codes.Unavailable, "not yet; not retried: ")
		checkStatus(t, err, codes.Unavailable, `retries to cluster "b" in flight as circuit_breakers.max_retries allows`)
		if n.Load() != 1 {
			t.Errorf("the backend saw %d attempts", n.Load())
		}
		if a := last.Load(); a.Number != 2 || a.Err == nil || !strings.Contains(a.Err.Error(), "max_retries") {
			t.Errorf("the last attempt in the trace: %+v", a)
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
