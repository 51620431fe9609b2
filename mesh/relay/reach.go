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

// noteReach notes for a subscription whether its management servers can be reached. The caller holds g.mu, as
// that of forgetReach does.
func (g *group) noteReach(s *subscription, err *xdsclient.Error) {
	away := err != nil && err.Kind == xdsclient.KindUnreachable
	if away == s.away || g.closed {
		return
	}
	if s.away = away; !away {
		stopTimer(&s.late)
		g.isBack("the control plane answers again")
		return
	}
	s.awaySince = time.Now()
	if g.away.subs++; g.away.subs > 1 {
		return
	}
	g.away.since = time.Now()
	if r := g.relay; r.countAway(1) == 1 {
		r.log.Warn("the control plane is unreachable; serving clients from the cache", "server", err.Server, "error", err.Err)
	}
}

// forgetReach notes that a subscription has ended. That is no answer of the control plane.
func (g *group) forgetReach(s *subscription) {
	if s.away {
		s.away = false
		g.isBack(noLongerAsked)
	}
}

const noLongerAsked = "no subscriptions left on the unreachable control plane: the clients that waited for it have gone"

// isBack counts a subscription less whose management servers are unreachable. If there is none left in the
// relay, its log says why.
func (g *group) isBack(why string) {
	if g.away.subs--; g.away.subs > 0 {
		return
	}
	if r := g.relay; r.countAway(-1) == 0 {
		r.log.Info(why)
	}
}

// countAway counts groups whose management servers have become unreachable, and returns how many there are.
func (r *Relay) countAway(more int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.awayGroups += more
	return r.awayGroups
}
