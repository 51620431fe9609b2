package xdsclient

import (
	"bytes"
	"slices"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// subscriptionState says how far a subscription got with its server.
type subscriptionState int

const (
	// subscriptionUnsent: no request of this stream names the resource.
	subscriptionUnsent subscriptionState = iota
	// subscriptionRequested: a request is out, and the resource timer runs.
	subscriptionRequested
	// subscriptionReceived: the server has sent the resource. A response with
	// the full state that omits it therefore deletes it.
	subscriptionReceived
	// subscriptionMissing: the server deleted the resource, or did not send it
	// in time. It may still come.
	subscriptionMissing
)

// subscription is a resource that a server is asked for. It stays after the last
// watch stopped until the server was told: if a watch starts before that, the
// server does not notice and would not send the resource again.
type subscription struct {
	resource *resource
	state    subscriptionState
	// released says that the resource is not subscribed to at this server any
	// more, although it may be at another one.
	released bool
	// payload is the last valid version that this server sent, or nil. The cache
	// has it too, unless it follows another server.
	payload *payload
	// taken is when, and with which version, the server last sent payload.
	taken stamp
	// held is an error that this server reported and that is kept back while the
	// cache follows another server, or nil.
	held *setback
	// hash is that of the accepted bytes if they name the resource, or 0.
	hash uint64
	// seen is the number of the last response with the resource.
	seen uint64
	// deadline is when the resource timer fires, on the channel's stopwatch.
	deadline stopwatchTime
}

// wanted reports whether the resource is to be asked for.
func (s *subscription) wanted() bool { return !s.released && len(s.resource.watches) > 0 }

// known returns what was decoded of these very bytes, or nil: the version that
// the server sent last, or the one in the cache, if it came from a server of the
// same features, so that the bytes mean the same.
func (s *subscription) known(raw []byte, server *bootstrap.Server) *payload {
	for _, p := range [...]*payload{s.payload, s.resource.payload} {
		if p != nil && p.of(server) && bytes.Equal(p.raw, raw) {
			return p
		}
	}
	return nil
}

// replyState says whether a response still has to be answered.
type replyState int

const (
	replyNone replyState = iota
	replyACK
	replyNACK
)

// typeState is what a channel knows of a type: its subscriptions, and the version
// and nonce that the protocol keeps per type. Guarded by XDSClient.mu.
type typeState struct {
	typ *ResourceType
	// version is the last that was accepted in whole. It outlives the stream.
	version string
	subs    map[string]*subscription
	// byHash finds the subscription whose accepted bytes have a hash. Of two
	// with the same hash it knows one; the other is decoded each time.
	byHash map[uint64]*subscription
	// responses counts the responses for the type.
	responses uint64
	// names are what the last request listed, or will list. It is replaced, not
	// changed.
	names []string
	// changed says that names is out of date.
	changed bool

	// What follows is the state of one stream.

	nonce string
	// announced says that a request of this stream listed names. From then on
	// an empty list unsubscribes; before, it would ask for every resource
	// (Envoy, xDS protocol, "How the client specifies what resources to
	// return").
	announced bool
	reply     replyState
	// fault is the text of the NACK that is due.
	fault string
	// unasked says that the response to be answered has resources that nobody
	// watched. They were dropped, but the server takes what it has sent and the
	// answer names for known: the answer must not name what was subscribed to
	// since.
	unasked bool
}

func newTypeState(t *ResourceType) *typeState {
	return &typeState{
		typ:    t,
		subs:   make(map[string]*subscription),
		byHash: make(map[uint64]*subscription),
	}
}

// drop forgets a subscription.
func (ts *typeState) drop(s *subscription) {
	ts.unindex(s)
	delete(ts.subs, s.resource.key.name)
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
func (ts *typeState) find(raw []byte, hash uint64, server *bootstrap.Server) *subscription {
	if s := ts.byHash[hash]; s != nil && s.known(raw, server) != nil {
		return s
	}
	return nil
}

// forgetVersion forgets, between two streams, the version of a type of which
// nothing is left, lest the server take the next resource for one that the client
// has.
func (ts *typeState) forgetVersion() {
	if len(ts.subs) == 0 {
		ts.version = ""
	}
}

// sweep drops what is no longer watched.
func (ts *typeState) sweep() {
	for _, s := range ts.subs {
		if !s.wanted() {
			ts.drop(s)
		}
	}
}

// named returns the subscription to what a server calls name, or nil.
func (ts *typeState) named(name []byte) *subscription {
	if s := ts.subs[string(name)]; s != nil || !bytes.HasPrefix(name, []byte(newStylePrefix)) {
		return s
	}
	return ts.subs[canonicalName(string(name))]
}

// begin prepares for a new stream, on which nothing was said yet.
func (ts *typeState) begin() {
	ts.sweep()
	ts.forgetVersion()
	ts.nonce, ts.announced, ts.reply, ts.fault, ts.unasked = "", false, replyNone, "", false
	ts.changed = true
	for _, s := range ts.subs {
		if s.state == subscriptionRequested {
			s.state = subscriptionUnsent
		}
	}
}

// next returns the request that is due, or nil, and the subscriptions it makes
// known to the server. While changes of the subscriptions are held back, only
// answers to responses are due, and they list what the last request did.
func (ts *typeState) next(held bool) (r *request, fresh []*subscription) {
	news := false
	if ts.changed && !held && !(ts.unasked && ts.announced) {
		fresh, news = ts.list()
	}
	if !news && ts.reply == replyNone {
		return nil, nil
	}
	if len(ts.names) == 0 && !ts.announced {
		ts.reply = replyNone
		return nil, nil
	}
	r = &request{
		typeURL: ts.typ.TypeURL,
		version: ts.version,
		nonce:   ts.nonce,
		names:   ts.names,
		fault:   ts.fault,
	}
	ts.announced, ts.reply, ts.fault, ts.unasked = true, replyNone, "", false
	return r, fresh
}

// list brings names up to date. It returns the subscriptions that the server does
// not know of, and whether there is any news for it.
func (ts *typeState) list() (fresh []*subscription, news bool) {
	ts.sweep()
	ts.changed = false
	names := make([]string, 0, len(ts.subs))
	for name, s := range ts.subs {
		names = append(names, name)
		if s.state == subscriptionUnsent {
			fresh = append(fresh, s)
		}
	}
	slices.Sort(names)
	news = !ts.announced || len(fresh) > 0 || !slices.Equal(names, ts.names)
	ts.names = names
	return fresh, news
}
