package e2e_test

import (
	"context"
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

// RPCs are retried as the route or its virtual host says (gRFC A44).
func TestRetryEndToEnd(t *testing.T) {
	everyWay(t)
	t.Parallel()
	for _, level := range []string{"route", "virtual host"} {
		xdstest.Parallel(t, level, func(t *testing.T) {
			m, backend := newMesh(t), testutils.StartBackend(t, "b")
			route := retriedRoute("b", `retry_on: "unavailable" num_retries { value: 2 }`)
			rc := xdsmsg.RouteConfig(service, service, route)
			if level == "virtual host" {
				rc.VirtualHosts[0].RetryPolicy, route.GetRoute().RetryPolicy = route.GetRoute().RetryPolicy, nil
			}
			cc := m.dialServing(clusterOf("b", backend), xdsmsg.DefaultListener(service, service), rc)
			eachKind(t, func(t *testing.T, k kind) {
				n := failTimes(backend, 2)
				if r := callFor(testutils.Context(t), cc, k); r.err != nil || n.Load() != 3 {
					t.Errorf("%d attempts: %v", n.Load(), r.err)
				}
				if got := backend.Last().Metadata["grpc-previous-rpc-attempts"]; !slices.Equal(got, []string{"2"}) {
					t.Errorf("grpc-previous-rpc-attempts %q", got)
				}
			})
		})
	}
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

// RPCs that meet a backend that hangs are answered by another one (Envoy, HedgePolicy.hedge_on_per_try_timeout), and
// the hedges are counted (gRFC A96, grpc.client.call.hedges).
func TestHedgingEndToEnd(t *testing.T) {
	t.Parallel()
	inOneWay(t, "attempts are hedged at the backend")
	m, recorder := newMesh(t), newPolicyMeter()
	hangs, answers := testutils.StartBackend(t, "hangs"), testutils.StartBackend(t, "answers")
	m.set(chain(service, with(retriedRoute("c", `retry_on: "unavailable" num_retries { value: 2 } per_try_timeout { nanos: 100000000 }`),
		`route { hedge_policy { hedge_on_per_try_timeout: true } }`)), clusterOf("c", hangs, answers))
	cc := m.dial("xds:///"+service, grpc.WithStatsHandler(recorder))
	reachAll(t, cc, hangs, answers)
	recorder.Change(func() { clear(recorder.counts) }) // These RPCs are hedged too on a slow machine.
	var attempts struct {
		xdstest.State
		began, open int
	}
	hangs.SetBehaviour(func(ctx context.Context, _ testutils.RPC) error {
		attempts.Change(func() { attempts.began++; attempts.open++ })
		<-ctx.Done()
		attempts.Change(func() { attempts.open-- })
		return nil
	})
	hedges := make(map[string]int64)
	eachKindThatEndsItsRequest(t, func(t *testing.T, k kind) {
		var n atomic.Int64 // attempts after the first
		for range 4 {
			ctx := dynxds.WithTrace(testutils.Context(t), &dynxds.Trace{AttemptEnded: func(a dynxds.TraceAttempt) {
				if a.Number > 1 {
					n.Add(1)
				}
			}})
			id, err := call(ctx, cc, k)
			xdstest.NoError(t, err)
			if id != "answers" {
				t.Errorf("answered by %q", id)
			}
		}
		if n.Load() == 0 {
			t.Error("no RPC was hedged")
		}
		hedges["hedges grpc.method="+strings.TrimPrefix(answers.Last().Method, "/")+" grpc.target=xds:///"+service] = n.Load()
	})
	attempts.Await(t, "the attempts that hang to be canceled", func() bool { return attempts.began > 0 && attempts.open == 0 })
	recorder.expect(t, "grpc.client.call.", hedges)
}
