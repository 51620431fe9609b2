package xdsclient

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// refusedVariant is a variant of the protocol that a server does not implement,
// whatever its bootstrap entry says.
type refusedVariant struct{ server, method string }

// protocolFor returns the best variant for a server. The caller holds
// XDSClient.mu.
func (c *XDSClient) protocolFor(server *bootstrap.Server) wire.Protocol {
	for _, p := range wire.Protocols {
		if _, refused := c.refused[refusedVariant{server.Key(), p.Method()}]; !refused && p.OfferedBy(server) {
			return p
		}
	}
	return wire.Protocols[len(wire.Protocols)-1]
}

// refused finds out whether a stream ended because the server does not implement
// the variant in use, and changes to the next one if there is one. The client
// remembers that. It is no error that a watcher would want to hear of, and no
// reason to wait.
func (ch *serverChannel) refused(err error) bool {
	if status.Code(err) != codes.Unimplemented {
		return false
	}
	ch.client.mu.Lock()
	defer ch.client.unlock()
	if ch.state != linkOpen {
		return false
	}
	method := ch.protocol.Method()
	ch.client.refused[refusedVariant{ch.server.Key(), method}] = struct{}{}
	next := ch.client.protocolFor(ch.server)
	if next.Method() == method {
		return false
	}
	ch.client.warningf("xDS management server %s does not implement %s, which its server_features promise; using %s from now on",
		ch.server, method, next.Method())
	ch.protocol = next
	ch.state = linkConnecting
	ch.reset()
	for _, ts := range ch.types {
		ts.dialect = next.Dialect(ch.server)
		for s := range ts.subs.all() {
			if !ts.served(s) {
				ch.unserved(s)
			}
		}
	}
	return true
}
