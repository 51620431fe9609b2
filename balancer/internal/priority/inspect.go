package priority

import (
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/inspect"
)

// Inspect describes the i-th priority, for diagnostics, but for its error, which users of the package know. The policy is nil if it was
// not needed yet. Inspect changes nothing.
func (p *Policy[C]) Inspect(i int) (inspect.Use, tree.Configured[C]) {
	c := p.order[i]
	if c == nil {
		return inspect.Use{Status: inspect.StatusNotStarted}, nil
	}
	u := inspect.Use{Since: c.since, InUse: c == p.current}
	switch c.state {
	case connectivity.Ready:
		u.Status = inspect.StatusReady
	case connectivity.Idle:
		u.Status = inspect.StatusIdle
	case connectivity.Connecting:
		u.Status = inspect.StatusConnecting
		if c.settled != failed {
			u.FailoverEnd, u.TimedOut = c.started.Add(FailoverTimeout), !c.failover.Pending()
		}
	default:
		u.Status = inspect.StatusFailed
	}
	if c.retention.Pending() {
		u.Deactivated, u.RetentionEnd = c.deactivated, c.deactivated.Add(RetentionTime)
	}
	return u, c.policy
}
