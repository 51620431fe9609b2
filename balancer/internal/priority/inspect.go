package priority

import (
	"google.golang.org/grpc/connectivity"

	"github.com/dynxds/dynxds/balancer/internal/tree"
	"github.com/dynxds/dynxds/internal/inspect"
)

// Described is one priority, for diagnostics.
type Described[C any] struct {
	Entry Entry[C]
	// Use has no Error, which users of the package know.
	Use inspect.Use
	// Policy is nil if the priority was not needed yet; State is then IDLE.
	Policy tree.Configured[C]
	State  connectivity.State
}

// Inspect describes the priorities in order of preference. It changes nothing.
func (p *Policy[C]) Inspect() []Described[C] {
	all := make([]Described[C], len(p.order))
	for i, c := range p.order {
		all[i] = Described[C]{Entry: p.entries[i], State: connectivity.Idle, Use: inspect.Use{Status: inspect.StatusNotStarted}}
		if c != nil {
			all[i].State, all[i].Policy, all[i].Use = c.state, c.policy, c.use()
			all[i].Use.InUse = c == p.current
		}
	}
	return all
}

// use describes a child without regard to the others.
func (c *child[C]) use() inspect.Use {
	u := inspect.Use{Since: c.since}
	switch c.state {
	case connectivity.Ready:
		u.Status = inspect.StatusReady
	case connectivity.Idle:
		u.Status = inspect.StatusIdle
	case connectivity.Connecting:
		u.Status = inspect.StatusConnecting
		if c.settled != failed {
			u.FailoverEnd, u.TimedOut = c.started.Add(FailoverTimeout), c.failover == nil
		}
	default:
		u.Status = inspect.StatusFailed
	}
	if c.retention != nil {
		u.Deactivated, u.RetentionEnd = c.deactivated, c.deactivated.Add(RetentionTime)
	}
	return u
}
