package relay

import (
	"time"

	"github.com/dynxds/dynxds/xdsclient"
)

// away counts the subscriptions whose management servers are unreachable, since the first became so.
type away struct {
	subs  int
	since time.Time
}

// noteReach notes for a subscription whether its management servers can be reached. It logs
// the first one that cannot, and when all can again. The caller holds g.mu, as that of forgetReach does.
func (g *group) noteReach(s *subscription, err *xdsclient.Error) {
	away := err != nil && err.Kind == xdsclient.KindUnreachable
	if away == s.away {
		return
	}
	s.away = away
	switch {
	case away:
		if g.away.subs++; g.away.subs == 1 {
			g.away.since = time.Now()
			g.relay.log.Warn("the control plane is unreachable: clients get what the relay has", "server", err.Server, "error", err.Err)
		}
	default:
		if g.away.subs--; g.away.subs == 0 {
			g.relay.log.Info("the control plane answers again")
		}
	}
}

// forgetReach notes that a subscription has ended. That is no answer of the control plane.
func (g *group) forgetReach(s *subscription) {
	if !s.away {
		return
	}
	s.away = false
	if g.away.subs--; g.away.subs == 0 {
		g.relay.log.Info("the unreachable control plane is no longer asked: the clients that waited for it have left")
	}
}
