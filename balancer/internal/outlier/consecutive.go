package outlier

import (
	"time"

	"github.com/dynxds/dynxds/balancer/internal/conns"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

// byRun are the methods that eject endpoints for runs, by conns.Run.
var byRun = [...]method{byConsecutive5xx, byConsecutiveGateway, byConsecutiveLocalOrigin}

// ejectionOf returns the configuration for runs of one kind. nil: nothing is ejected for them.
func ejectionOf(c *xdsresource.OutlierDetection, run conns.Run) *xdsresource.ConsecutiveEjection {
	return [...]*xdsresource.ConsecutiveEjection{c.Consecutive5xx, c.ConsecutiveGatewayFailure, c.ConsecutiveLocalOriginFailure}[run]
}

func runLimits(c *xdsresource.OutlierDetection) conns.RunLimits {
	limits := conns.RunLimits{Split: c.SplitLocalOriginErrors}
	for run := range limits.Lengths {
		if e := ejectionOf(c, conns.Run(run)); e != nil {
			limits.Lengths[run] = e.Failures
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
	if c := ejectionOf(d.config, run); c != nil {
		d.detected(e, time.Now(), byRun[run], c.EnforcementPercentage)
	}
}
