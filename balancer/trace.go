package balancer

import (
	"context"

	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

// traceFailure reports a pick that has failed to the RPC's trace, if it has one. The pickers of
// clusters report those that succeed.
func traceFailure(ctx context.Context, cluster string, why rpctrace.Reason, err error) {
	if t := decision.FromContext(ctx).Trace(); t != nil {
		t.Picked(rpctrace.Pick{Cluster: cluster, Reason: why, Err: err})
	}
}
