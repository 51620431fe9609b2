package xdsclient

import (
	"bytes"
	"maps"
	"slices"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
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
	// incremental is that of the variant in use.
	incremental bool
	// version is the last that was accepted in whole. It outlives the stream.
	version string
	subs    map[string]*subscription
	// byHash finds the subscription whose accepted bytes have a hash. Of two
	// with the same hash it knows one; the other is decoded each time.
	byHash map[uint64]*subscription
	// own has the resources' own names of the subscriptions to aliases, and byOwn
	// finds these by them.
	own   map[*subscription]string
	byOwn map[string][]*subscription
	// collections counts the subscriptions to collections.
	collections int
	// names are what the last request listed, or will list. It is replaced, not
	// changed. An incremental variant does not need it.
	names []string
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
	// unasked says that the response to be answered has resources that nobody
	// watched. They were dropped, but a state-of-the-world server takes what it
	// has sent and the answer names for known: the answer must not name what
	// was subscribed to since.
	unasked bool
	// probe has the first request keep one version to itself, so that the
	// server has something to answer.
	probe bool
}

func newTypeState(t *ResourceType, server *bootstrap.Server, incremental bool) *typeState {
	return &typeState{
		typ:         t,
		server:      server,
		incremental: incremental,
		subs:        make(map[string]*subscription),
		byHash:      make(map[uint64]*subscription),
		own:         make(map[*subscription]string),
		byOwn:       make(map[string][]*subscription),
		touched:     make(map[*subscription]struct{}),
	}
}

// add starts a subscription.
func (ts *typeState) add(r *resource) *subscription {
	s := newSubscription(r)
	ts.subs[r.key.name] = s
	r.subscriptions++
	if s.members != nil {
		ts.collections++
	}
	ts.touch(s)
	return s
}

// touch notes that a subscription became wanted or unwanted.
func (ts *typeState) touch(s *subscription) { ts.touched[s] = struct{}{} }

// forgetWord forgets what the server has said of a resource or a collection.
func (ts *typeState) forgetWord(s *subscription) {
	ts.dropMembers(s)
	s.state, s.payload, s.taken, s.setback = subscriptionUnsent, nil, stamp{}, nil
	ts.version = ""
}

// dropMembers forgets the members of a collection.
func (ts *typeState) dropMembers(s *subscription) {
	for _, m := range s.members {
		ts.dropMember(s, m)
	}
}

// dropMember forgets a member of a collection.
func (ts *typeState) dropMember(s, m *subscription) {
	m.state = subscriptionDropped
	ts.unindex(m)
	delete(s.members, m.resource.key.name)
}

// drop forgets a subscription.
func (ts *typeState) drop(s *subscription) {
	s.state = subscriptionDropped
	ts.unindex(s)
	ts.dropMembers(s)
	ts.setOwn(s, "")
	delete(ts.touched, s)
	delete(ts.subs, s.resource.key.name)
	if s.members != nil {
		ts.collections--
	}
	s.resource.authority.forget(s.resource)
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
	return !ts.incremental || s.state != subscriptionUnsent
}

// named returns the subscription to what a server calls name, a resource or a
// collection, or nil.
func (ts *typeState) named(name []byte) *subscription {
	s := ts.subs[string(name)] // does not copy
	if s == nil && bytes.HasPrefix(name, []byte(newStylePrefix)) {
		s = ts.subs[canonicalName(string(name))]
	}
	if s == nil || !ts.knows(s) {
		return nil
	}
	return s
}

// forgetVersion forgets, between two streams, the version of a type of which
// nothing is left, lest the server take the next resource for one that the client
// has.
func (ts *typeState) forgetVersion() {
	if len(ts.subs) == 0 {
		ts.version = ""
	}
}

// begin prepares for a new stream, on which nothing was said yet.
func (ts *typeState) begin() {
	for _, s := range ts.subs {
		switch {
		case !s.wanted():
			ts.drop(s)
		case s.state == subscriptionSending || s.state == subscriptionRequested:
			s.state = subscriptionUnsent
		}
	}
	ts.forgetVersion()
	ts.nonce, ts.announced, ts.answered, ts.unasked, ts.probe = "", false, false, false, false
	ts.replies, ts.backlog = nil, 0
}

// reply notes the answer to a response. It reports whether the server reads what
// it is answered.
func (ts *typeState) reply(r reply) bool {
	ts.nonce = r.nonce
	if !ts.incremental {
		ts.replies, ts.backlog = ts.replies[:0], 0
	}
	waiting := len(ts.replies)
	ts.replies = append(ts.replies, r)
	ts.backlog += len(r.nonce) + len(r.fault) + 64
	return waiting == 0 || ts.backlog <= maxBacklog
}

// takeReply has a request answer the response that waits longest for it.
func (ts *typeState) takeReply(r *request) {
	if ts.incremental {
		r.nonce = ""
	}
	if len(ts.replies) == 0 {
		ts.replies = nil
		return
	}
	first := ts.replies[0]
	r.nonce, r.fault = first.nonce, first.fault
	ts.replies[0] = reply{}
	ts.replies = ts.replies[1:]
	ts.backlog -= len(first.nonce) + len(first.fault) + 64
}

// next returns the request that is due, or nil, and the subscriptions it makes
// known to the server. While changes of the subscriptions are held back, only
// answers to responses are due, and they list what the last request did.
func (ts *typeState) next(held bool) (r *request, fresh []*subscription) {
	early := ts.unasked && ts.announced && !ts.incremental
	changed := (!ts.announced || len(ts.touched) > 0) && !held && !early
	if !changed && (len(ts.replies) == 0 || !ts.announced) {
		return nil, nil
	}
	r = &request{typeURL: ts.typ.TypeURL, version: ts.version, nonce: ts.nonce}
	news := false
	switch {
	case changed && ts.incremental:
		fresh, news = ts.listChanges(r)
	case changed:
		fresh, news = ts.listNames()
	}
	if !news && len(ts.replies) == 0 {
		return nil, nil
	}
	if !ts.announced && len(ts.names) == 0 && len(r.subscribe) == 0 {
		ts.replies, ts.backlog = nil, 0
		return nil, nil
	}
	r.names = ts.names
	ts.takeReply(r)
	for _, s := range fresh {
		s.state = subscriptionSending
	}
	ts.announced, ts.unasked = true, false
	return r, fresh
}

// settle goes through the subscriptions that changed since the last request, or
// through all before the first. It drops those that are no longer watched, and
// returns their names if the server knows of them, and the subscriptions that the
// server does not know of.
func (ts *typeState) settle() (fresh []*subscription, left []string) {
	touched := maps.Keys(ts.touched)
	if !ts.announced {
		touched = maps.Values(ts.subs)
	}
	for s := range touched {
		switch {
		case !s.wanted():
			if s.state != subscriptionUnsent {
				left = append(left, s.resource.key.name)
			}
			ts.drop(s)
		case s.state == subscriptionUnsent && ts.served(s):
			fresh = append(fresh, s)
		}
	}
	if len(ts.touched) > 0 { // a map that was cleared stays large
		ts.touched = make(map[*subscription]struct{})
	}
	slices.SortFunc(fresh, bySubscribedName)
	slices.Sort(left)
	return fresh, left
}

// served reports whether the variant can serve a subscription.
func (ts *typeState) served(s *subscription) bool { return s.members == nil || ts.incremental }

// listNames brings names up to date. It returns the subscriptions that the server
// does not know of, and whether there is any news for it.
func (ts *typeState) listNames() (fresh []*subscription, news bool) {
	fresh, _ = ts.settle()
	names := make([]string, 0, len(ts.subs))
	for name, s := range ts.subs {
		if ts.served(s) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	news = !ts.announced || len(fresh) > 0 || !slices.Equal(names, ts.names)
	ts.names = names
	return fresh, news
}

// listChanges writes the changes of the subscriptions into a request. In the
// first one of a stream that is all there is, with the versions of what is
// cached. It returns the subscriptions that the server does not know of, and
// whether there is any news for it.
func (ts *typeState) listChanges(r *request) (fresh []*subscription, news bool) {
	first := !ts.announced
	fresh, left := ts.settle()
	ts.names = nil
	if first {
		r.subscribe = slices.Sorted(maps.Keys(ts.subs))
		r.cached = ts.cached()
		return fresh, true
	}
	for _, s := range fresh {
		r.subscribe = append(r.subscribe, s.resource.key.name)
	}
	r.unsubscribe = left
	return fresh, len(fresh) > 0 || len(left) > 0
}

// cached returns the versions of what the client has from this server, and uses,
// by the resources' own names.
//
// A version under which the server would keep silent, but should not, is left
// empty, so that it sends the resource again: if the server's last word was an
// error it may have gone back to the version in use, which clears the error; and
// of a server that was unreachable an answer is wanted, as that is what ends the
// error.
func (ts *typeState) cached() map[string]string {
	versions := make(map[string]string)
	for name, s := range ts.subs {
		if own := ts.own[s]; own != "" {
			name = own
		}
		s.cachedVersion(versions, name)
		for name, m := range s.members {
			m.cachedVersion(versions, name)
		}
	}
	if ts.probe && len(versions) > 0 {
		versions[slices.Min(slices.Collect(maps.Keys(versions)))] = ""
	}
	return versions
}
