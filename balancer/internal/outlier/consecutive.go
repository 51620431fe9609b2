package outlier

import (
	"time"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// consecutive is what ejects endpoints for runs of one kind.
type consecutive struct {
	run    conns.Run
	method method
	config *xdsresource.ConsecutiveEjection // nil: nothing does
}

func consecutives(c *xdsresource.OutlierDetection) [3]consecutive {
	return [3]consecutive{
		{conns.Run5xx, byConsecutive5xx, c.Consecutive5xx},
		{conns.RunGateway, byConsecutiveGateway, c.ConsecutiveGatewayFailure},
		{conns.RunLocalOrigin, byConsecutiveLocalOrigin, c.ConsecutiveLocalOriginFailure},
	}
}

func runLimits(c *xdsresource.OutlierDetection) conns.RunLimits {
	limits := conns.RunLimits{Split: c.SplitLocalOriginErrors}
	for _, one := range consecutives(c) {
		if one.config != nil {
			limits.Lengths[one.run] = one.config.Failures
		}
	}
	return limits
}

// ranTooLong is called when e has failed as many RPCs in a row as the configuration at that time
// allowed. It ejects e at once, as Envoy does: the interval does not matter. The next run starts
// at 0, whether e is ejected or not.
func (d *Detector) ranTooLong(e *endpoint, run conns.Run) {
	e.RestartRun(run)
	if d.config == nil || d.byKey[e.key] != e {
		return
	}
	for _, one := range consecutives(d.config) {
		if one.run == run && one.config != nil {
			d.detected(e, time.Now(), one.method, one.config.EnforcementPercentage)
		}
	}
}
