package xdsclient

import (
	"time"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
	"github.com/dynxds/dynxds/xdsclient/internal/transport"
)

// A server that answers UNIMPLEMENTED to a protocol that its bootstrap entry promises is spoken to in the next
// one. It may have been somebody else who answered, such as an ingress that did not find the server, so
// the better protocol is tried again, with backoff, whether or not the stream of the other one works:
//
//	delta stream        UNIMPLEMENTED
//	SotW stream         works
//	delta stream, 1 s   UNIMPLEMENTED, as the SotW stream goes on
//	delta stream, 1.6 s stays open: the SotW stream ends, and the next one is delta

// attempted is a protocol of a server.
type attempted struct{ server, method string }

// refusal remembers a protocol that a server did not implement when it was tried.
type refusal struct {
	tries transport.Retries
	// until is when it is tried again.
	until time.Time
}

// again notes that the server does not implement the protocol.
func (r *refusal) again() { r.until = time.Now().Add(r.tries.Next()) }

// protocolFor returns the best protocol for a server at the moment. The caller holds XDSClient.mu.
func (c *XDSClient) protocolFor(server *bootstrap.Server) wire.Protocol {
	for _, p := range wire.Protocols {
		r := c.refusals[attempted{server.Key(), p.Method()}]
		if p.OfferedBy(server) && (r == nil || !time.Now().Before(r.until)) {
			return p
		}
	}
	return wire.Protocols[len(wire.Protocols)-1]
}

// refused returns the refusal of the best protocol that the server promises, if it is another than the one in
// use, or nil.
func (ch *serverChannel) refused() (wire.Protocol, *refusal) {
	for _, p := range wire.Protocols {
		if p.OfferedBy(ch.server) && p.Method() != ch.protocol.Method() {
			return p, ch.client.refusals[attempted{ch.server.Key(), p.Method()}]
		}
		if p.Method() == ch.protocol.Method() {
			break
		}
	}
	return nil, nil
}

// downgrade changes to the next protocol after the server said that it does not implement the one
// in use, if there is one. It is no error that a watcher needs to know of, and no reason to wait.
func (ch *serverChannel) downgrade() bool {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	method := ch.protocol.Method()
	if !ch.link.Unanswered() || method == wire.Protocols[len(wire.Protocols)-1].Method() {
		return false
	}
	key := attempted{ch.server.Key(), method}
	r := ch.client.refusals[key]
	first := r == nil
	if first {
		r = &refusal{tries: transport.Retries{Config: ch.client.options.backoff}}
		ch.client.refusals[key] = r
	}
	r.again()
	if first {
		ch.client.warningf("xDS management server %s does not implement %s, which its server_features promise; using %s, and trying again with backoff",
			ch.server, method, ch.client.protocolFor(ch.server).Method())
	}
	ch.link.Restart()
	ch.reset()
	return true
}

// upgrade ends the use of a stream, as the server seems to implement a better protocol by now.
func (ch *serverChannel) upgrade() bool {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	if ch.link.Closed() {
		return false
	}
	ch.link.Restart()
	ch.reset()
	return true
}

// speak has the next stream be of a protocol. Versions of one mean nothing in another.
func (ch *serverChannel) speak(next wire.Protocol) {
	if next.Method() == ch.protocol.Method() {
		return
	}
	ch.protocol = next
	for _, ts := range ch.types {
		ts.Dialect = next.Dialect(ch.server)
		ts.disclaim()
		for s := range ts.subs.all() {
			if !ts.Serves(s) {
				ts.refuse(s)
			}
		}
	}
}

// implements notes that the server answers in the protocol in use.
func (ch *serverChannel) implements() {
	key := attempted{ch.server.Key(), ch.protocol.Method()}
	if ch.client.refusals[key] == nil {
		return
	}
	delete(ch.client.refusals, key)
	ch.client.infof("xDS management server %s implements %s by now", ch.server, ch.protocol.Method())
}

// Better implements ads.Handler.
func (ch *serverChannel) Better() (p wire.Protocol, at time.Time) {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	p, r := ch.refused()
	if r == nil {
		return nil, time.Time{}
	}
	return p, r.until
}

// Tried implements ads.Handler.
func (ch *serverChannel) Tried(implemented bool) {
	ch.client.mu.Lock()
	defer ch.client.unlock()
	switch _, r := ch.refused(); {
	case r == nil:
	case implemented:
		r.until = time.Now()
	default:
		r.again()
	}
}
