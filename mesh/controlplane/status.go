package controlplane

import (
	"cmp"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
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
	return cmp.Or(map[Protocol]string{ProtocolSotW: "SotW", ProtocolDelta: "delta"}[p], "unknown")
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
	// Names are the subscribed names, those of glob collections included, in order, each once. NameCount is
	// the number of subscriptions to them, several of which may be to one name with different constraints.
	Names     []string
	NameCount int
	// Locators are the names with their constraints, ordered by name, if the
	// client subscribes by locators (xRFC TP2), wildcards included. A locator
	// whose constraints cannot be used is among Errors, and here without them.
	Locators []Locator
	// Sent are the resources of Names that the client was last sent, ordered by name. It is empty if the client gets
	// no versions of resources (SotW without resource-in-sotw).
	Sent []SentResource
	// Errors are the errors (xRFC TP3) in effect, ordered by name: the client is still
	// subscribed, and neither another error nor the resource was sent since.
	Errors []ErrorStatus
	// ErrorCount is their number, of which Server.Overview lists some.
	ErrorCount int
	// Kept are the names of deleted resources that the client still has, as the removal was
	// not sent yet (Options.RemovalDelay), in order, each once.
	Kept []string
	// SentVersion and SentNonce are those of the last response, which may still be on its
	// way; empty if there was none. The version is that of the type (SotW) or of the store
	// (delta) at that time.
	SentVersion, SentNonce string
	// SentAt is when the last response was made, zero if there was none.
	SentAt time.Time
	// SilentSince is since when the client has answered neither the last response nor an older one, while Reply is ReplyAwaited.
	SilentSince time.Time
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

func (l Locator) compare(other Locator) int {
	return cmp.Or(cmp.Compare(l.Name, other.Name), cmp.Compare(l.Constraints.Key(), other.Constraints.Key()))
}

// SentResource is a resource that a client was sent.
type SentResource struct {
	Locator
	// Version is [Resource.Version] as the client has it.
	Version string
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
// itself. The cost grows with all names of all streams; see [Server.Overview].
func (s *Server) Clients() []ClientStatus {
	return s.each(func(st *stream) ClientStatus { return st.status(math.MaxInt) })
}

// Client returns the status of one stream by its ClientStatus.ID, with all of its names. It reports false if the stream has ended.
func (s *Server) Client(id uint64) (ClientStatus, bool) {
	s.mu.Lock()
	st := s.streams[id]
	s.mu.Unlock()
	if st == nil {
		return ClientStatus{}, false
	}
	return st.status(math.MaxInt), true
}

// Overview returns the present streams as Clients does, for people who watch them: with at most 20 of the names,
// locators, sent resources, errors and kept resources of a type, whichever. A stream that has not changed since the last call costs
// almost nothing; the errors of one whose names change meanwhile may be incomplete. The values are shared between callers, and must not be changed.
func (s *Server) Overview() []ClientStatus { return s.each((*stream).overview) }

func (s *Server) each(status func(*stream) ClientStatus) []ClientStatus {
	clients := []ClientStatus{}
	for _, st := range s.present() {
		clients = append(clients, status(st))
	}
	return clients
}

// overviewed is how many elements of its lists Overview has.
const overviewed = 20

// present returns the streams in the order they began.
func (s *Server) present() []*stream {
	s.mu.Lock()
	streams := slices.Collect(maps.Values(s.streams))
	s.mu.Unlock()
	slices.SortFunc(streams, func(a, b *stream) int { return cmp.Compare(a.id, b.id) })
	return streams
}

// lastOverview is what Server.Overview returned last of a stream.
type lastOverview struct {
	// changes counts what may have changed the status of the stream.
	changes atomic.Uint64

	mu sync.Mutex
	// at is changes when the status was taken.
	at     uint64
	status *ClientStatus
}

func (s *stream) overview() ClientStatus {
	o := &s.last
	o.mu.Lock()
	defer o.mu.Unlock()
	if at := o.changes.Load(); o.status == nil || o.at != at {
		status := s.status(overviewed)
		o.at, o.status = at, &status
	}
	return *o.status
}

// status returns the status, with at most so many elements of each list. Under the locks it only collects them.
func (s *stream) status(most int) ClientStatus {
	node, greeted := s.greeting()
	c := ClientStatus{ID: s.id, Since: s.began, Protocol: s.protocol, Node: node}
	if s.peer != nil {
		c.Peer = s.peer.Addr
	}
	if !greeted {
		return c // it may move to another store, and has no subscriptions; or it has ended
	}
	turn := &turns{locks: []sync.Locker{s.store.mu.RLocker(), &s.mu}, pace: s.store.pace}
	turn.lock()
	for _, typeURL := range slices.Sorted(maps.Keys(s.subs)) {
		c.Types = append(c.Types, s.subs[typeURL].status(most, turn))
	}
	turn.unlock()
	for i := range c.Types {
		c.Types[i].sort()
	}
	return c
}

// status is called with Store.mu and stream.mu.
func (sub *subscription) status(most int, turn *turns) TypeStatus {
	d := sub.delivery
	t := TypeStatus{
		TypeURL:      sub.typeURL,
		Wildcard:     sub.wildcard(),
		SentVersion:  d.version,
		SentNonce:    d.nonce,
		SentAt:       d.sentAt,
		SilentSince:  d.silentSince,
		Reply:        d.reply,
		ACKedVersion: d.ackedVersion,
		NACK:         d.nack,
		Refusing:     d.refusing,
	}
	for tp, old := range sub.items.kept.m {
		if len(t.Kept) >= most {
			break
		}
		t.Kept = append(t.Kept, sub.spelling(sub.askOf(tp), old))
	}
	sub.addNames(&t, most)
	sub.addErrors(&t, most, turn)
	return t
}

// addNames adds the subscribed names and locators, and what was sent of them. The caller holds Store.mu and stream.mu.
func (sub *subscription) addNames(t *TypeStatus, most int) {
	t.NameCount = len(sub.names)
	if t.Wildcard {
		t.NameCount -= sub.wildcards
	}
	some := min(len(sub.names), most)
	t.Names = make([]string, 0, some)
	versions := sub.wraps
	for a := range sub.asks() {
		if some--; some < 0 {
			return
		}
		l := sub.locator(a)
		shown := Locator{l.name, l.constraints}
		if !sub.isWildcard(sub.topicOf(a)) {
			t.Names = append(t.Names, l.name)
		}
		if sub.addressing == byLocators {
			t.Locators = append(t.Locators, shown)
		}
		if r := sub.lastSent(sub.topicOf(a), a).asResource(); versions && r != nil {
			t.Sent = append(t.Sent, SentResource{shown, r.version})
		}
	}
}

// addErrors adds the standing errors. It looks through all that the client was sent, in turns, or until the names
// change meanwhile.
func (sub *subscription) addErrors(t *TypeStatus, most int, turn *turns) {
	version := sub.namesVersion
	turn.resume, turn.ended = func() bool { return sub.namesVersion == version }, false
	for tp, e := range sub.allSent {
		if !turn.next() {
			return
		}
		missing := e == absence && sub.mode != pushDifference && sub.stream.reportsAbsence
		if e.err == nil && !missing {
			continue
		}
		if t.ErrorCount++; t.ErrorCount > most {
			continue
		}
		var l locator
		a := sub.askOf(tp)
		if a != nil {
			l = sub.locator(a)
		}
		if missing {
			t.Errors = append(t.Errors, ErrorStatus{l.name, l.constraints, notFound(sub.typeURL, l.name).status})
		} else {
			t.Errors = append(t.Errors, ErrorStatus{sub.spelling(a, e), l.constraints, e.err.status})
		}
	}
}

// sort puts the lists in order.
func (t *TypeStatus) sort() {
	slices.Sort(t.Names)
	t.Names = slices.Compact(t.Names)
	slices.SortFunc(t.Locators, Locator.compare)
	slices.SortFunc(t.Sent, func(a, b SentResource) int { return a.compare(b.Locator) })
	slices.SortFunc(t.Errors, func(a, b ErrorStatus) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Constraints.Key(), b.Constraints.Key()))
	})
	slices.Sort(t.Kept)
	t.Kept = slices.Compact(t.Kept)
}
