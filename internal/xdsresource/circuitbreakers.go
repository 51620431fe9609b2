package xdsresource

import (
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/internal/faults"
)

// RetryLimit bounds the concurrent retries to a cluster: Fixed of them, or Percent of the RPCs
// in flight, whichever is more.
type RetryLimit struct {
	// Fixed is max_retries, or retry_budget.min_retry_concurrency (default: 3).
	Fixed uint32
	// Percent is retry_budget.budget_percent (default: 20). It is 0 without a retry_budget.
	Percent float64
	// Interval is retry_budget.budget_interval: Percent is of the RPCs that started within that time.
	// 0: of those in flight.
	Interval time.Duration
	// Budget reports that there is a retry_budget, which replaces max_retries.
	Budget bool
}

// Envoy's defaults of retry_budget.
const (
	defaultRetryConcurrency = 3
	defaultBudgetPercent    = 20
)

// circuitBreakers decodes the first threshold with priority DEFAULT, the only priority that gRPC
// has (gRFC A32).
func (d clusterDecoder) circuitBreakers(pb *clusterpb.Cluster, c *Cluster) {
	var at *faults.Path
	var threshold *clusterpb.CircuitBreakers_Thresholds
	for i, t := range pb.GetCircuitBreakers().GetThresholds() {
		if t.GetPriority() == corepb.RoutingPriority_DEFAULT {
			at, threshold = faults.Field("circuit_breakers").Item("thresholds", i), t
			break
		}
	}
	c.Limits = d.threshold(at, threshold)
}

// threshold decodes the limits. Unlike Envoy's, the limit of retries has no default: gRPC has none (gRFC A44).
func (d clusterDecoder) threshold(at *faults.Path, pb *clusterpb.CircuitBreakers_Thresholds) Limits {
	return Limits{numberOr(pb.GetMaxRequests(), DefaultMaxRequests), d.retryLimit(at, pb)}
}

func (d clusterDecoder) retryLimit(at *faults.Path, pb *clusterpb.CircuitBreakers_Thresholds) *RetryLimit {
	budget := pb.GetRetryBudget()
	switch {
	case budget != nil:
	case pb.GetMaxRetries() != nil:
		return &RetryLimit{Fixed: pb.GetMaxRetries().GetValue()}
	default:
		return nil
	}
	percent := float64(defaultBudgetPercent)
	if p := budget.GetBudgetPercent(); p != nil {
		percent = p.GetValue()
		if !(percent >= 0 && percent <= 100) { // NaN is neither
			d.fault(at.Field("retry_budget").Field("budget_percent"), "must be from 0 to 100, is %v", percent)
		}
	}
	return &RetryLimit{
		Fixed: numberOr(budget.GetMinRetryConcurrency(), defaultRetryConcurrency), Percent: percent, Budget: true,
		Interval: d.duration(at.Field("retry_budget").Field("budget_interval"), budget.GetBudgetInterval()),
	}
}
