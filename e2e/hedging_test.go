package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

// RPCs that meet a backend that hangs are answered by another one (Envoy, HedgePolicy.hedge_on_per_try_timeout), and
// the hedges are counted (gRFC A96, grpc.client.call.hedges).
func TestHedgingEndToEnd(t *testing.T) {
	t.Parallel()
	m, recorder := newMesh(t), newPolicyMeter()
	hangs, answers := testutils.StartBackend(t, "hangs"), testutils.StartBackend(t, "answers")
	routes := retriedRoute("c", &routepb.RetryPolicy{
		RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(2), PerTryTimeout: durationpb.New(100 * time.Millisecond),
	})
	routes[0].GetRoute().HedgePolicy = &routepb.HedgePolicy{HedgeOnPerTryTimeout: true}
	m.set(append(chain(service, routes...), clusterOf("c", hangs, answers)...)...)
	cc := m.dial("xds:///"+service, grpc.WithStatsHandler(recorder))
	for ctx, seen := testutils.Context(t), make(map[string]bool); len(seen) < 2; {
		id, err := call(ctx, cc, unary, grpc.WaitForReady(true))
		xdstest.NoError(t, err)
		seen[id] = true
	}
	canceled := make(chan bool, 100)
	hangs.SetBehaviour(func(ctx context.Context, _ testutils.RPC) error {
		<-ctx.Done()
		canceled <- true
		return nil
	})
	hedges, total := make(map[string]int64), 0
	eachKindThatEndsItsRequest(t, func(t *testing.T, k kind) {
		n := 0
		for range 4 {
			ctx := dynxds.WithTrace(testutils.Context(t), &dynxds.Trace{Retried: func(dynxds.TraceRetry) { n++ }})
			id, err := call(ctx, cc, k)
			xdstest.NoError(t, err)
			if id != "answers" {
				t.Errorf("answered by %q", id)
			}
		}
		if n == 0 {
			t.Error("no RPC was hedged")
		}
		hedges["hedges grpc.method="+strings.TrimPrefix(answers.Last().Method, "/")+" grpc.target=xds:///"+service] = int64(n)
		total += n
	})
	for range total {
		<-canceled
	}
	recorder.expect(t, "grpc.client.call.", hedges)
}
