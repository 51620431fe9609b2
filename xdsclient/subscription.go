package xdsclient

import (
	"cmp"
	"strings"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// subscriptionState says how far a subscription got with its server.
type subscriptionState int

const (
	// subscriptionUnsent: no request of this stream names the resource.
	subscriptionUnsent subscriptionState = iota
	// subscriptionSending: a request that names the resource is being written.
	subscriptionSending
	// subscriptionRequested: a request is out, and the resource timer runs.
	subscriptionRequested
	// subscriptionReceived: the server has sent the resource. A response with
	// the full state that omits it therefore deletes it.
	subscriptionReceived
	// subscriptionDoubted: the server has sent the resource, and is to be asked
	// again whether it is still the preferred variant.
	subscriptionDoubted
	// subscriptionMissing: the server deleted the resource, does not have it,
	// or did not send it in time. It may still come.
	subscriptionMissing
	// subscriptionFailed: the server sent an error in place of the resource. It
	// does so once, so that a response without either changes nothing (xRFC
	// TP3, "Protocol Behavior").
	subscriptionFailed
	// subscriptionDropped: the subscription has ended.
	subscriptionDropped
)

// subscription is a resource that a server is asked for. It stays after the last
// watch stopped until the server was told: if a watch starts before that, the
// server does not notice and would not send the resource again.
//
// The members of a collection have one each as well, of which the server is not
// told.
type subscription struct {
	resource *resource
	// next is another subscription to the same name.
	next  *subscription
	state subscriptionState
	// behind says that it is the next of another one.
	behind bool
	// repeat says that the server is to be asked again, and repeats how often it
	// was. asked is the number of the last response before it was asked. See
	// typeState.crossed.
	repeat  bool
	repeats int
	asked   uint64
	// request is the number of the first request of the stream that listed it, or 0, and
	// doubted that of the response whose denial was not believed, or 0. See update.doubts.
	request, doubted uint64
	// payload is the last valid version that this server sent, or nil, and lastError
	// what it said since if that is an error. The cache has both too.
	payload   *payload
	lastError *lastError
	// taken is when, and with which version, the server last sent payload.
	taken stamp
	// offer is what a response has for the subscription. It is nil if the server
	// was never asked for variants.
	offer *offer
	// hash is that of the accepted bytes if they name the resource, or 0.
	hash uint64
	// after is what came behind this in the last response that had both unchanged,
	// and most likely does again. It is nil, or indexed, or was.
	after *subscription
	// seen is the number of the last response that has something to say of the
	// resource, and found that of the last thing in a response that was found
	// to be for it.
	seen, found uint64
	// deadline is when the resource timer fires, on the channel's stopwatch.
	deadline stopwatchTime
}

func newSubscription(r *resource) *subscription {
	s := &subscription{resource: r}
	if r.glob != nil {
		r.glob.sub = s
	}
	return s
}

// wanted reports whether the resource is to be asked for.
func (s *subscription) wanted() bool { return len(s.resource.watches) > 0 }

// known returns what was decoded of these very bytes, or nil: the version that
// the server sent last, or one in a cache of the authority, if it came from a server of
// the same features, so that the bytes mean the same.
func (s *subscription) known(raw []byte, server *bootstrap.Server) *payload {
	if s.payload.is(raw, server) {
		return s.payload
	}
	return s.resource.known(raw, server)
}

// known returns the version with these very bytes that a cache of the authority has, or
// nil.
func (r *resource) known(raw []byte, server *bootstrap.Server) *payload {
	if r.payload.is(raw, server) {
		return r.payload
	}
	for _, l := range r.level.authority.levels {
		if l == r.level || l.channel == nil {
			continue
		}
		if twin := l.entryLike(r); twin != nil && twin.payload.is(raw, server) {
			return twin.payload
		}
	}
	return nil
}

// bySubscribed is the order of subscriptions in requests.
func bySubscribed(a, b *subscription) int {
	x, y := &a.resource.key, &b.resource.key
	return cmp.Or(strings.Compare(x.name, y.name), strings.Compare(x.variant, y.variant))
}
