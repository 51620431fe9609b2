package controlplane

import (
	"cmp"
	"maps"
	"net"
	"slices"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// Protocol is a form of the xDS transport protocol.
type Protocol int

const (
	// ProtocolSotW is StreamAggregatedResources, the state of the world.
	ProtocolSotW Protocol = iota
	// ProtocolDelta is DeltaAggregatedResources, the incremental protocol.
	ProtocolDelta
)

// String returns the name that the field uses.
func (p Protocol) String() string {
	switch p {
	case ProtocolSotW:
		return "SotW"
	case ProtocolDelta:
		return "delta"
	default:
		return "unknown"
	}
}

// ClientStatus is what the server knows of one stream.
type ClientStatus struct {
	// ID numbers the server's streams from 1 on, in the order they began.
	ID uint64
	// Protocol is what the stream speaks.
	Protocol Protocol
	// Peer is the address the stream comes from, nil if unknown.
	Peer net.Addr
	// Node is the one of the stream's first request, nil before that or if it
	// had none. It must not be changed.
	Node *corepb.Node
	// Types has an entry per type the client has asked for, ordered by
	// TypeURL.
	Types []TypeStatus
}

// TypeStatus is what the server knows of one type on one stream.
type TypeStatus struct {
	TypeURL string
	// Wildcard says that the client asked for all resources of the type.
	Wildcard bool
	// Names are those the client asked for by name, in order, each once. Names
	// of glob collections are among them.
	Names []string
	// Locators are the names with their constraints, ordered by name, if the
	// client subscribes by locators (xRFC TP2), wildcards included. A locator
	// whose constraints cannot be used is among Errors, and here without them.
	Locators []Locator
	// Errors are the errors (xRFC TP3) that were sent and stand: neither
	// another error nor the resource was sent since, and the client is still
	// subscribed. They are ordered by name.
	Errors []ErrorStatus
	// Kept are the names of resources that were deleted and that the client still has,
	// in order, each once: it was not told yet (Options.RemovalDelay).
	Kept []string
	// SentVersion and SentNonce are those of the last response, empty if none
	// was sent. It may still be on its way. The version is that of the type
	// (SotW) or of the store (delta) at that time.
	SentVersion, SentNonce string
	// Reply is how the client took the last response.
	Reply Reply
	// ACKedVersion is that of the last response the client accepted.
	ACKedVersion string
	// NACK is the last rejection, nil if there was none. Reply reports whether it
	// was followed by an ACK.
	NACK *NACK
}

// Locator is a name and the constraints a client subscribed to it with.
type Locator struct {
	Name        string
	Constraints dynparam.Constraints
}

// ErrorStatus is an error that a client was sent in place of a resource.
type ErrorStatus struct {
	// Name is the resource's, or a glob collection's, as the client spells it.
	Name string
	// Constraints are those of the subscription, for a client that subscribes by
	// locators.
	Constraints dynparam.Constraints
	Err         *status.Status
}

// AmbiguousChoices returns how often, since the store was made, TP2 left open which of
// several matching variants a subscription gets, so that another implementation might
// choose another one: the deployment does not follow the best practices of TP2's
// "Matching Behavior and Best Practices". A choice that streams share is counted once, and
// the servers of a store share the count.
func (s *Server) AmbiguousChoices() uint64 { return s.store.ambiguous.Load() }

// Clients returns the present streams in the order they began. Each entry is
// consistent in itself. Its cost is that of all names of all streams.
func (s *Server) Clients() []ClientStatus {
	s.mu.Lock()
	streams := slices.Collect(maps.Values(s.streams))
	s.mu.Unlock()
	slices.SortFunc(streams, func(a, b *stream) int { return cmp.Compare(a.id, b.id) })
	clients := make([]ClientStatus, len(streams))
	for i, st := range streams {
		clients[i] = st.status()
	}
	return clients
}

func (s *stream) status() ClientStatus {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := ClientStatus{ID: s.id, Protocol: s.protocol, Node: s.node}
	if s.peer != nil {
		c.Peer = s.peer.Addr
	}
	for _, typeURL := range sortedKeys(maps.Keys(s.subs)) {
		c.Types = append(c.Types, s.subs[typeURL].status())
	}
	return c
}

func (sub *subscription) status() TypeStatus {
	d := sub.delivery
	return TypeStatus{
		TypeURL:      sub.typeURL,
		Wildcard:     sub.interest.wildcard(),
		Names:        sub.sortedNames(),
		Locators:     sub.locators(),
		Errors:       sub.standingErrors(),
		Kept:         sub.keptNames(),
		SentVersion:  d.version,
		SentNonce:    d.nonce,
		Reply:        d.reply,
		ACKedVersion: d.ackedVersion,
		NACK:         d.nack,
	}
}

// standingErrors returns the errors that the client was told last. The caller
// holds Store.mu and stream.mu.
func (sub *subscription) standingErrors() []ErrorStatus {
	var errs []ErrorStatus
	for tp, e := range sub.told {
		l := sub.names[tp]
		switch {
		case e.err != nil:
			errs = append(errs, ErrorStatus{sub.spelling(tp, e), l.constraints, e.err.status})
		case e == absence && sub.telling != tellDifference:
			errs = append(errs, ErrorStatus{l.name, l.constraints, notFound(sub.typeURL, l.name).status})
		}
	}
	slices.SortFunc(errs, func(a, b ErrorStatus) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Constraints.Key(), b.Constraints.Key()))
	})
	return errs
}

// keptNames returns the names in kept. The caller holds stream.mu.
func (sub *subscription) keptNames() []string {
	var names []string
	for tp, old := range sub.kept {
		names = append(names, sub.spelling(tp, old))
	}
	slices.Sort(names)
	return slices.Compact(names)
}
