package xdsclient

import (
	"maps"
	"slices"
	"time"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
	"github.com/dynxds/dynxds/xdsclient/internal/choice"
)

// reply is the answer to a response: a NACK if it has a fault, else an ACK.
type reply struct{ nonce, fault string }

// maxBacklog bounds, in bytes, the answers that wait for a server that does not
// read them. One answer may always wait.
const maxBacklog = 4 << 20

// typeState is what a channel knows of a type: its subscriptions, and the version
// and nonce that the protocol keeps per type. Guarded by XDSClient.mu.
//
// It decides for every variant of the protocol what is due. In an incremental one
// the work is proportional to what changed, not to the subscriptions.
type typeState struct {
	typ    *ResourceType
	server *bootstrap.Server
	// dialect is how the server is spoken to.
	dialect wire.Dialect
	// version is the last that was accepted in whole. It outlives the stream.
	version string
	subs    subscriptions
	// byHash finds the subscription whose accepted bytes have a hash. Of two
	// with the same hash it knows one; the other is decoded each time.
	byHash map[uint64]*subscription
	// own has the resources' own names of the subscriptions to aliases, and byOwn
	// finds these by them.
	own   map[*subscription]string
	byOwn map[string][]*subscription
	// collections counts the subscriptions to collections.
	collections int
	// listed is what the last request listed, or will list. It is replaced, not
	// changed. An incremental variant does not need it.
	listed wire.Targets
	// touched are the subscriptions whose first watch began, or whose last one
	// stopped, since the last request. It has no meaning before the first one.
	touched map[*subscription]struct{}

	// What follows is the state of one stream.

	nonce string
	// announced says that a request of this stream listed names. From then on
	// an empty list unsubscribes; before, it would ask for every resource
	// (Envoy, xDS protocol, "How the client specifies what resources to
	// return").
	announced bool
	// answered says that the server sent a response for the type.
	answered bool
	// replies are due. In a variant that is not incremental only the last
	// counts. backlog is their size in bytes.
	replies []reply
	backlog int
	// relist says that the answer to a response has to list what the last request
	// did, and not what was subscribed to since: the response has resources that
	// nobody watched, which were dropped, and a state-of-the-world server takes what
	// it has sent and the answer names for known; or it may have crossed a request.
	relist bool
	// leftOut is what requests did not list any more, with the number of responses since,
	// and heard is the number of the last response. See typeState.crossed.
	leftOut map[resourceKey]int
	heard   uint64
	// last is the last response, and hold delays the answers to its repetitions.
	last lastResponse
	hold replyHold
	// requests counts those that changed subscriptions, and read is the last of them
	// that an incremental server is known to have read. left has the names that a
	// subscription was given up of, with the number of the request. See update.doubts.
	requests, read uint64
	left           map[string]uint64
	// probe has the first request keep one version to itself, so that the
	// server has something to answer.
	probe bool
}

func newTypeState(t *ResourceType, server *bootstrap.Server, dialect wire.Dialect) *typeState {
	return &typeState{
		typ:     t,
		server:  server,
		dialect: dialect,
		subs:    make(subscriptions),
		byHash:  make(map[uint64]*subscription),
		own:     make(map[*subscription]string),
		byOwn:   make(map[string][]*subscription),
		touched: make(map[*subscription]struct{}),
	}
}

// add starts a subscription.
func (ts *typeState) add(r *resource) *subscription {
	s := newSubscription(r)
	ts.subs.add(s)
	if s.resource.glob != nil {
		ts.collections++
	}
	ts.touch(s)
	return s
}

// touch notes that a subscription became wanted or unwanted.
func (ts *typeState) touch(s *subscription) {
	ts.disturb()
	ts.touched[s] = struct{}{}
}

// forgetWord forgets what the server has said of a resource or a collection.
func (ts *typeState) forgetWord(s *subscription) {
	ts.disturb()
	ts.dropMembers(s)
	s.state, s.payload, s.taken, s.lastError = subscriptionUnsent, nil, stamp{}, nil
	ts.version = ""
}

// dropMembers forgets the members of a collection.
func (ts *typeState) dropMembers(s *subscription) {
	for m := range s.resource.glob.members().all() {
		ts.dropMember(m)
	}
}

// dropMember forgets a member of a collection.
func (ts *typeState) dropMember(m *subscription) {
	ts.disturb()
	m.state = subscriptionDropped
	ts.unindex(m)
	m.resource.collection.removeMember(m)
}

// drop forgets a subscription.
func (ts *typeState) drop(s *subscription) {
	ts.disturb()
	s.state = subscriptionDropped
	ts.unindex(s)
	ts.dropMembers(s)
	ts.setOwn(s, "")
	delete(ts.touched, s)
	ts.subs.remove(s)
	if s.resource.glob != nil {
		ts.collections--
	}
	s.resource.level.forget(s.resource)
}

// index makes a subscription found by the hash of its accepted bytes.
func (ts *typeState) index(s *subscription, hash uint64) {
	ts.unindex(s)
	if hash != 0 && ts.byHash[hash] == nil {
		s.hash, ts.byHash[hash] = hash, s
	}
}

func (ts *typeState) unindex(s *subscription) {
	if s.hash != 0 {
		delete(ts.byHash, s.hash)
		s.hash = 0
	}
}

// find returns the subscription of which these very bytes are known, or nil.
func (ts *typeState) find(raw []byte, hash uint64) *subscription {
	if s := ts.byHash[hash]; s != nil && s.known(raw, ts.server) != nil {
		return s
	}
	return nil
}

// setOwn notes the own name of a resource that was subscribed to by an alias.
func (ts *typeState) setOwn(s *subscription, own string) {
	if own == s.resource.key.name {
		own = ""
	}
	old := ts.own[s]
	if old == own {
		return
	}
	if old != "" {
		delete(ts.own, s)
		ts.byOwn[old] = slices.DeleteFunc(ts.byOwn[old], func(x *subscription) bool { return x == s })
		if len(ts.byOwn[old]) == 0 {
			delete(ts.byOwn, old)
		}
	}
	if own != "" {
		ts.own[s] = own
		ts.byOwn[own] = append(ts.byOwn[own], s)
	}
}

// knows reports whether the server was asked on this stream for what a
// subscription wants. What an incremental server says before that may be older
// than the subscription, and will be said again.
func (ts *typeState) knows(s *subscription) bool {
	return !ts.dialect.Incremental() || s.state != subscriptionUnsent
}

// named returns the first of the subscriptions to what a server calls name, to
// resources or to collections, or nil.
func (ts *typeState) named(name []byte) *subscription { return ts.subs.named(name) }

// forgetVersion forgets, between two streams, the version of a type of which
// nothing is left: the server could take the next resource for one that the client
// has.
func (ts *typeState) forgetVersion() {
	if len(ts.subs) == 0 {
		ts.version = ""
	}
}

// begin prepares for a new stream, on which nothing was said yet.
func (ts *typeState) begin() {
	for s := range ts.subs.all() {
		s.repeat, s.doubted, s.request = false, 0, 0
		if s.offer != nil { // the next stream may be another server's
			s.offer.doubt = choice.Doubt{}
		}
		switch {
		case !s.wanted():
			ts.drop(s)
		case s.pending():
			s.state = subscriptionUnsent
		}
	}
	ts.forgetVersion()
	ts.nonce, ts.announced, ts.answered, ts.relist, ts.leftOut, ts.probe = "", false, false, false, nil, false
	ts.requests, ts.read, ts.left = 0, 0, nil
	ts.replies, ts.backlog = nil, 0
	ts.last, ts.hold = lastResponse{}, replyHold{}
}

// reply notes the answer to a response. It reports whether the server reads what
// it is answered.
func (ts *typeState) reply(r reply) bool {
	ts.hold.release()
	return ts.enqueueReply(r)
}

// enqueueReply appends an answer. It reports whether the server reads what it is
// answered.
func (ts *typeState) enqueueReply(r reply) bool {
	ts.nonce = r.nonce
	if !ts.dialect.Incremental() {
		ts.replies, ts.backlog = ts.replies[:0], 0
	}
	waiting := len(ts.replies)
	ts.replies = append(ts.replies, r)
	ts.backlog += len(r.nonce) + len(r.fault) + 64
	return waiting == 0 || ts.backlog <= maxBacklog
}

// takeReply has a request answer the response that waits longest for it.
func (ts *typeState) takeReply(r *wire.Request) {
	if len(ts.replies) == 0 {
		ts.replies = nil
		return
	}
	first := ts.replies[0]
	r.Nonce, r.Fault = first.nonce, first.fault
	ts.replies[0] = reply{}
	ts.replies = ts.replies[1:]
	ts.backlog -= len(first.nonce) + len(first.fault) + 64
	ts.hold.sent = time.Now()
	if len(ts.replies) == 0 {
		ts.hold.until = time.Time{}
	}
}

// next returns the request that is due, or nil, and the subscriptions it makes
// known to the server. While changes of the subscriptions are held back, only
// answers to responses are due, and they list what the last request did.
//
// In an incremental variant a request either answers a response or has changes of the
// subscriptions. A server may take no notice of a request whose nonce is not that of its
// last response, and the changes in it would be lost; without a nonce it cannot be stale.
func (ts *typeState) next(held bool) (r *wire.Request, fresh []*subscription) {
	due, _ := ts.replyDue()
	if ts.dialect.Incremental() && ts.announced && due {
		r = &wire.Request{TypeURL: ts.typ.TypeURL}
		ts.takeReply(r)
		return r, nil
	}
	early := ts.relist && ts.announced && !ts.dialect.Incremental()
	changed := (!ts.announced || len(ts.touched) > 0) && !held && !early
	due = due || len(ts.replies) > 0 && early && len(ts.touched) > 0 && !held
	if !changed && (!due || !ts.announced) {
		return nil, nil
	}
	r = &wire.Request{TypeURL: ts.typ.TypeURL}
	ts.requests++
	news := false
	switch {
	case changed && ts.dialect.Incremental():
		fresh, news = ts.listChanges(r)
	case changed:
		fresh, news = ts.listAll()
	}
	if !news && (!due || ts.dialect.Incremental()) {
		return nil, nil
	}
	if !ts.announced && ts.listed.IsEmpty() && r.Subscribe.IsEmpty() {
		ts.replies, ts.backlog = nil, 0
		return nil, nil
	}
	if !ts.dialect.Incremental() {
		if !changed {
			ts.unlist()
		}
		r.Version, r.Nonce, r.All = ts.version, ts.nonce, ts.listed
		ts.takeReply(r)
	}
	if news {
		ts.disturb()
	}
	for _, s := range fresh {
		if s.repeat {
			s.repeat = false
		} else {
			s.repeats, s.doubted = 0, 0
		}
		s.state, s.asked = subscriptionSending, ts.heard
	}
	ts.announced, ts.relist = true, false
	return r, fresh
}

// settle goes through the subscriptions that changed since the last request, or
// through all before the first. It drops those that are no longer watched, and
// returns them if the server knows of them, and the subscriptions that the server
// does not know of.
func (ts *typeState) settle() (fresh, left []*subscription) {
	touched := maps.Keys(ts.touched)
	if !ts.announced {
		touched = ts.subs.all()
	}
	for s := range touched {
		if s.request == 0 && ts.served(s) {
			s.request = ts.requests
		}
		switch {
		case !s.wanted():
			if s.state != subscriptionUnsent {
				left = append(left, s)
			}
			ts.drop(s)
		case (s.state == subscriptionUnsent || ts.dialect.Incremental() && s.inDoubt()) && ts.served(s):
			fresh = append(fresh, s)
		}
	}
	if len(ts.touched) > 0 { // a map that was cleared stays large
		ts.touched = make(map[*subscription]struct{})
	}
	slices.SortFunc(fresh, bySubscribed)
	slices.SortFunc(left, bySubscribed)
	ts.leave(left)
	return fresh, left
}

// served reports whether the variant can serve a subscription.
func (ts *typeState) served(s *subscription) bool {
	return s.resource.glob == nil || ts.dialect.Incremental()
}
