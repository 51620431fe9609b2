package relay

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Four limits have a share for each of those who use them up, which shrinks as the limit is approached
// (quota.Quota), so that there is room for one more whatever the present ones take:
//
//   - a client, of the subscriptions on the upstream that its group shares;
//   - a peer, which is an address or a certificate, of the upstreams, by the groups that it began, and of the nodes of those without clients;
//   - a group, of the subscriptions that linger. One for which there is no room ends when its last client leaves.
//
// A refused subscription is an error for the clients that asked for it. Upstream is asked when there is room.

// retryEvery is how often the refused subscriptions of a group are tried again.
const retryEvery = time.Second

// charge has a client pay for a subscription. If there is no room, those that linger make room. The caller
// holds g.mu.
func (g *group) charge(stream uint64) error {
	err := g.names.Take(stream, 1)
	for idle := range g.lingering {
		if err == nil {
			return nil
		}
		idle.drop()
		err = g.names.Take(stream, 1)
	}
	if err != nil {
		return status.Errorf(codes.ResourceExhausted,
			"the xDS relay has %v: unsubscribe from others, or raise the limit if the control plane allows more on a stream (--max-group-subscriptions)", err)
	}
	return nil
}

// tryAgain has a refused subscription tried again. The caller holds g.mu.
func (g *group) tryAgain(s *subscription, refusal *status.Status) {
	g.refused[s] = refusal
	if g.again == nil {
		g.after(&g.again, retryEvery, g.retryRefused)
	}
}

// retryRefused begins the refused subscriptions, as far as there is room now. The caller holds g.mu.
func (g *group) retryRefused() {
	g.again = nil
	full := make(map[uint64]bool) // by client, or 0 for the upstreams of single clients
	for s := range g.refused {
		payer := s.demand.First
		if s.demand.Stream != 0 {
			payer = 0
		}
		if !full[payer] {
			s.subscribe()
			full[payer] = g.refused[s] != nil
		}
	}
	g.flushLater()
}
