package xdsclient

import (
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// subscription is a resource or a collection that a server is asked for. The members of a
// collection have one each as well, which is not requested.
type subscription struct {
	ads.Progress
	resource *resource
	// types is the state of its type at the server.
	types *typeState
	// members has, of a collection, a subscription for each member that the server has sent or has an error for. They are in no
	// request.
	members *subscriptions
	// next and prev are other subscriptions to the same name.
	next, prev *subscription
	// lastAnswer is that of this server. The cache has it too if the authority follows the server.
	lastAnswer
	// offer is the offer of a response to the subscription. It is nil if the server was never
	// asked for variants.
	offer *offer
	// found is the number of the last search by which it was found.
	found uint64
	// deadline is when the resource timer fires, on the channel's stopwatch, or 0 while the request is being written.
	deadline stopwatchTime
}

func newSubscription(r *resource, ts *typeState) *subscription {
	s := &subscription{resource: r, types: ts}
	if r.isCollection() {
		s.members = newSubscriptions()
	}
	r.subscriptions++
	return s
}

// Wanted implements ads.Subscriber. A member is in no request, and never wanted.
func (s *subscription) Wanted() bool { return s.types.channel.asksFor(s.resource) }

// IsCollection implements ads.Subscriber.
func (s *subscription) IsCollection() bool { return s.resource.isCollection() }

// Locator implements ads.Subscriber.
func (s *subscription) Locator() wire.Locator {
	return wire.Locator{Name: s.resource.key.name, Constraints: s.resource.constraints}
}

// known returns the decoded value of these very bytes, or nil: the version that
// the server sent last, or the one in the cache, if it came from a server of
// the same features, so that the bytes mean the same.
func (s *subscription) known(it *item, server *bootstrap.Server) *payload {
	for _, p := range []*payload{s.payload, s.resource.payload} {
		if p.of(it, server) {
			return p
		}
	}
	return nil
}

// inherits reports whether the resource that is in use is from another server or from disk.
func (s *subscription) inherits() bool {
	return s.payload == nil && s.resource.payload != nil && s.types.channel.serves(s.resource)
}
