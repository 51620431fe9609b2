package e2e_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/dynxds/dynxds"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/testutils"
)

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
