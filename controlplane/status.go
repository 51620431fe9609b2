package controlplane

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"time"

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

// String returns "SotW" or "delta".
func (p Protocol) String() string {
	names := [...]string{"SotW", "delta"}
	if p < 0 || int(p) >= len(names) {
		return "unknown"
	}
	return names[p]
}

// ClientStatus describes one stream.
type ClientStatus struct {
	// ID numbers the server's streams from 1 on, in the order they began.
	ID uint64
	// Since is when the stream began.
	Since time.Time
	// Protocol is what the stream speaks.
	Protocol Protocol
	// Peer is the client's address, nil if unknown.
	Peer net.Addr
	// Node is that of the stream's first request, nil before it or if it had none. It must
	// not be changed.
	Node *corepb.Node
	// Types has an entry for each type that was requested, ordered by TypeURL.
	Types []TypeStatus
}

// TypeStatus describes one type on one stream.
type TypeStatus struct {
	TypeURL string
	// Wildcard is set if the client subscribed to all resources of the type.
	Wildcard bool
	// Names are the subscribed names, those of glob collections included, in order, each once.
	Names []string
	// Locators are the names with their constraints, ordered by name, if the
	// client subscribes by locators (xRFC TP2), wildcards included. A locator
	// whose constraints cannot be used is among Errors, and here without them.
	Locators []Locator
	// Errors are the errors (xRFC TP3) in effect, ordered by name: the client is still
	// subscribed, and neither another error nor the resource was sent since.
	Errors []ErrorStatus
	// Kept are the names of deleted resources that the client still has, as the removal was
	// not sent yet (Options.RemovalDelay), in order, each once.
	Kept []string
	// SentVersion and SentNonce are those of the last response, which may still be on its
	// way; empty if there was none. The version is that of the type (SotW) or of the store
	// (delta) at that time.
	SentVersion, SentNonce string
	// SentAt is when the last response was made, zero if there was none.
	SentAt time.Time
	// Reply is the client's answer to the last response.
	Reply Reply
	// ACKedVersion is that of the last accepted response.
	ACKedVersion string
	// NACK is the last rejection, nil if there was none. Refusing is set while no ACK has
	// followed it.
	NACK     *NACK
	Refusing bool
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

// AmbiguousChoices returns how often since the store was made several variants matched a
// subscription and TP2 did not decide between them, so that another implementation might choose
// another one: the deployment violates TP2's "Matching Behavior and Best Practices". A choice that
// streams share is counted once, and the servers of a store share the count.
func (s *Server) AmbiguousChoices() uint64 { return s.store.ambiguous.Load() }

// Clients returns the present streams in the order they began. Each entry is consistent in
// itself. The cost grows with all names of all streams.
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
	store := s.servedFrom()
	store.mu.RLock()
	defer store.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := ClientStatus{ID: s.id, Since: s.began, Protocol: s.protocol, Node: s.node}
	if s.peer != nil {
		c.Peer = s.peer.Addr
	}
	for _, typeURL := range slices.Sorted(maps.Keys(s.subs)) {
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
		Kept:         sub.kept.names(&sub.selection),
		SentVersion:  d.version,
		SentNonce:    d.nonce,
		SentAt:       d.sentAt,
		Reply:        d.reply,
		ACKedVersion: d.ackedVersion,
		NACK:         d.nack,
		Refusing:     d.refusing,
	}
}

// standingErrors returns TypeStatus.Errors. The caller holds Store.mu and stream.mu.
func (sub *subscription) standingErrors() []ErrorStatus {
	var errs []ErrorStatus
	for tp, e := range sub.sent.all {
		var l locator
		if a := sub.askOf(tp); a != nil {
			l = sub.locator(a)
		}
		switch {
		case e.err != nil:
			errs = append(errs, ErrorStatus{sub.spelling(tp, e), l.constraints, e.err.status})
		case e == absence && sub.mode != pushDifference:
			errs = append(errs, ErrorStatus{l.name, l.constraints, notFound(sub.typeURL, l.name).status})
		}
	}
	slices.SortFunc(errs, func(a, b ErrorStatus) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Constraints.Key(), b.Constraints.Key()))
	})
	return errs
}

// names returns the names as the client spells them. The caller holds Store.mu and stream.mu.
func (kept keptEntries) names(s *selection) []string {
	var names []string
	for tp, old := range kept {
		names = append(names, s.spelling(tp, old))
	}
	slices.Sort(names)
	return slices.Compact(names)
}
