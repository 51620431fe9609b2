package cluster

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/decision"
	"github.com/dynxds/dynxds/internal/rpctrace"
)

func isRetry(d *decision.Decision) bool {
	a := d.Attempt()
	return a != nil && a.Retry
}

// enterRetry counts an RPC that is a retry, or returns the status error that ends it.
func (p *picker) enterRetry(d *decision.Decision) (retry bool, err error) {
	if !isRetry(d) {
		return false, nil
	}
	limit := p.gate.retries
	if p.gate.counter.StartRetry(limit.Fixed, limit.Percent, p.gate.window) {
		return true, nil
	}
	d.Fail(rpctrace.MaxRetries)
	field := "max_retries"
	if limit.Budget {
		field = "retry_budget"
	}
	return false, status.Errorf(codes.Unavailable,
		"dynxds: this process has as many retries to cluster %s in flight as circuit_breakers.%s allows", bounds.Quote(p.cluster), field)
}

// endRetry returns what gRPC is to call when a retry ends, where end is for any RPC.
func (g *gate) endRetry(end func(balancer.DoneInfo)) func(balancer.DoneInfo) {
	return func(info balancer.DoneInfo) {
		g.counter.EndRetry()
		end(info)
	}
}
