package xdsclient

import (
	"time"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// A server that answers UNIMPLEMENTED to delta, which its bootstrap entry promises, is spoken to in SotW. It may
// have been somebody else who answered, such as an ingress that did not find the server, so delta is tried again,
// with backoff, whether or not the SotW stream works:
//
//	delta stream        UNIMPLEMENTED
//	SotW stream         works
//	delta stream, 1 s   UNIMPLEMENTED, as the SotW stream goes on
//	delta stream, 1.6 s stays open: the SotW stream ends, and the next one is delta

// refusal remembers that a server did not implement delta when it was tried.
type refusal struct {
	tries transport.Retries
	// until is when it is tried again.
	until time.Time
}

// again notes that the server does not implement delta.
func (r *refusal) again() { r.until = time.Now().Add(r.tries.Next()) }

// protocolFor returns the best protocol for a server at the moment. The caller holds XDSClient.mu.
func (c *XDSClient) protocolFor(server *bootstrap.Server) wire.Protocol {
	r := c.refusals[server.Key()]
	if server.HasFeature(bootstrap.FeatureDelta) && (r == nil || !time.Now().Before(r.until)) {
		return wire.Delta{}
	}
	return wire.SotW{}
}

// refused returns the refusal because of which the server is spoken to in SotW, or nil.
func (ch *managementServer) refused() *refusal {
	if ch.protocol == (wire.Delta{}) {
		return nil
	}
	return ch.client.refusals[ch.server.Key()]
}

// downgrade changes to SotW after the server said that it does not implement delta. It is no error
// that a watcher needs to know of, and no reason to wait.
func (ch *managementServer) downgrade() bool {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	if !ch.link.Unanswered() || ch.protocol != (wire.Delta{}) {
		return false
	}
	r := ch.client.refusals[ch.server.Key()]
	if r == nil {
		r = &refusal{tries: transport.Retries{Config: ch.client.options.backoff}}
		ch.client.refusals[ch.server.Key()] = r
		ch.client.warningf("xDS management server %s does not implement %s, which its server_features promise; using %s, and trying again with backoff",
			ch.server, wire.Delta{}.Method(), wire.SotW{}.Method())
	}
	r.again()
	ch.link.Restart()
	ch.reset()
	return true
}

// upgrade ends the use of a SotW stream, as the server seems to implement delta by now.
func (ch *managementServer) upgrade() bool {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	if ch.link.Closed() {
		return false
	}
	ch.link.Restart()
	ch.reset()
	return true
}

// speak has the next stream be of a protocol. Versions of one mean nothing in another, so the server has to send again
// what it has sent.
func (ch *managementServer) speak(next wire.Protocol) {
	if next == ch.protocol {
		return
	}
	ch.protocol = next
	for _, ts := range ch.types {
		ts.Dialect = next.Dialect(ch.server)
		for s := range ts.subs.all() {
			ts.ForgetAnswers(s)
		}
	}
}

// implements notes that the server answers in the protocol in use.
func (ch *managementServer) implements() {
	if ch.protocol != (wire.Delta{}) || ch.client.refusals[ch.server.Key()] == nil {
		return
	}
	delete(ch.client.refusals, ch.server.Key())
	ch.client.infof("xDS management server %s implements %s by now", ch.server, ch.protocol.Method())
}

// Better implements ads.Handler.
func (ch *managementServer) Better() (p wire.Protocol, at time.Time) {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	r := ch.refused()
	if r == nil {
		return nil, time.Time{}
	}
	return wire.Delta{}, r.until
}

// Tried implements ads.Handler.
func (ch *managementServer) Tried(implemented bool) {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	switch r := ch.refused(); {
	case r == nil:
	case implemented:
		r.until = time.Now()
	default:
		r.again()
	}
}
