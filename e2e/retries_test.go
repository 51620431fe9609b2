package e2e_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previoushostspb "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// retriedRoute is a route to the cluster with the policy, which gets a backoff of 1 ms.
func retriedRoute(cluster string, policy *routepb.RetryPolicy) []*routepb.Route {
	route := toCluster(cluster)
	policy.RetryBackOff = &routepb.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(time.Millisecond)}
	route.GetRoute().RetryPolicy = policy
	return []*routepb.Route{route}
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
			m.serveRoutes(retriedRoute("b", &routepb.RetryPolicy{
				RetryOn: conditions, NumRetries: wrapperspb.UInt32(4), PerTryTimeout: durationpb.New(time.Second),
			}), backend)
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
		m.serveRoutes(retriedRoute("b", &routepb.RetryPolicy{RetryOn: "deadline-exceeded", PerTryTimeout: durationpb.New(100 * time.Millisecond)}), backend)
		cc := m.dial("xds:///" + service)
		eachKindThatEndsItsRequest(t, func(t *testing.T, k kind) {
			backend.SetBehaviour(func(ctx context.Context, _ testutils.RPC) error {
				<-ctx.Done()
				return nil
			})
			var mu sync.Mutex
			var events []string
			add := func(event string) {
				mu.Lock()
				defer mu.Unlock()
				events = append(events, event)
			}
			ctx := dynxds.WithTrace(testutils.Context(t), &dynxds.Trace{
				AttemptEnded: func(a dynxds.TraceAttempt) { add(status.Convert(a.Err).Message()) },
				Retried:      func(r dynxds.TraceRetry) { add("retry") },
			})
			checkStatus(t, callFor(ctx, cc, k).err, codes.DeadlineExceeded, "attempt 2 of the RPC was not answered for 100ms, the per_try_timeout")
			mu.Lock()
			defer mu.Unlock()
			if len(events) != 3 || !strings.Contains(events[0], "attempt 1") || events[1] != "retry" || !strings.Contains(events[2], "attempt 2") {
				t.Errorf("the trace: %q", events)
			}
		})
	})
}

// Envoy, retry_on connect-failure: the RPC is retried until there is a connection.
func TestRetryOnConnectFailureEndToEnd(t *testing.T) {
	t.Parallel()
	m, backend := newMesh(t), testutils.StartBackend(t, "b")
	route := retriedRoute("b", &routepb.RetryPolicy{RetryOn: "connect-failure", NumRetries: wrapperspb.UInt32(4)})
	m.serveRoutes(route, backend)
	cc := m.dial("xds:///" + service)
	mustReach(t, cc, unary, backend)
	backend.Stop()
	notReady := func(err error) bool { return err != nil && strings.Contains(err.Error(), "no endpoint of cluster") }
	for ctx, err := testutils.Context(t), error(nil); !notReady(err); _, err = call(ctx, cc, unary) {
		xdstest.NoError(t, ctx.Err())
	}
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
	resources := chain(service, retriedRoute("b", &routepb.RetryPolicy{RetryOn: "unavailable"})...)
	for _, r := range clusterOf("b", backend) {
		if c, ok := r.(*clusterpb.Cluster); ok {
			c.CircuitBreakers = &clusterpb.CircuitBreakers{Thresholds: []*clusterpb.CircuitBreakers_Thresholds{{MaxRetries: wrapperspb.UInt32(0)}}}
		}
		resources = append(resources, r)
	}
	m.set(resources...)
	cc := m.dial("xds:///" + service)
	eachKind(t, func(t *testing.T, k kind) {
		var n atomic.Int32
		backend.SetBehaviour(func(context.Context, testutils.RPC) error {
			n.Add(1)
			return testutils.TrailersOnly(status.Error(codes.Unavailable, "not yet"))
		})
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
	m := newMesh(t)
	backends := []*testutils.Backend{testutils.StartBackend(t, "b0"), testutils.StartBackend(t, "b1"), testutils.StartBackend(t, "b2")}
	resources := chain(service, retriedRoute("c", &routepb.RetryPolicy{
		RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(2), HostSelectionRetryMaxAttempts: 20,
		RetryHostPredicate: []*routepb.RetryPolicy_RetryHostPredicate{{
			Name: "previous", ConfigType: &routepb.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: xdsmsg.Any(new(previoushostspb.PreviousHostsPredicate))},
		}},
	})...)
	m.set(append(resources, clusterOf("c", backends...)...)...)
	cc := m.dial("xds:///" + service)
	for ctx, seen := testutils.Context(t), make(map[string]bool); len(seen) < 3; {
		id, err := call(ctx, cc, unary, grpc.WaitForReady(true))
		xdstest.NoError(t, err)
		seen[id] = true
	}
	for _, b := range backends {
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
	m.serveRoutes(retriedRoute("b", &routepb.RetryPolicy{RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(4)}), backend)
	cc := m.dial("xds:///"+service, grpc.WithStatsHandler(recorder))
	labels := func(method string) string {
		return " grpc.method=" + strings.TrimPrefix(method, "/") + " grpc.target=xds:///" + service
	}
	want := make(map[string]int64)
	var failures, n atomic.Int32
	backend.SetBehaviour(func(context.Context, testutils.RPC) error {
		if n.Add(1) <= failures.Load() {
			return testutils.TrailersOnly(status.Error(codes.Unavailable, "not yet"))
		}
		return nil
	})
	for _, k := range kinds {
		for _, retries := range []int32{0, 2, 3} {
			failures.Store(retries)
			n.Store(0)
			xdstest.NoError(t, callFor(testutils.Context(t), cc, k).err)
			if method := backend.Last().Method; retries > 0 {
				want["retries"+labels(method)] += int64(retries)
				want["retry_delay"+labels(method)]++
			}
		}
	}
	recorder.expect(t, "grpc.client.call.", want)
}
