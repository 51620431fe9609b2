package xdsclient

import (
	"time"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// subscription is a resource or a collection that a server is asked for. The members of a
// collection have one each as well, which is not requested.
type subscription struct {
	resource *resource
	// types is the state of its type at the server.
	types *typeState
	// members has, of a collection, a subscription for each member that the server has sent or has an error for. They are in no
	// request.
	members *subscriptions
	// State is how far the subscription got on the stream; step changes it.
	State ads.State
	// seen is the number of the last response that has something to say of the resource.
	seen uint64
	requested
	// canonical is the name of the resource if the subscription is to an alias of it.
	canonical string
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
	deadline time.Duration
}

func newSubscription(r *resource, ts *typeState) *subscription {
	s := &subscription{resource: r, types: ts}
	if r.isCollection() {
		s.members = newSubscriptions()
	}
	r.subscriptions++
	return s
}

// requested is what the requests of a stream have said of a subscription.
type requested struct {
	// request is the number of the request since which the requests of the stream list the subscription, or 0, and
	// listed how many responses of the stream came for the type before that request.
	request, listed uint64
	// before is the request since which lists had the subscription before it was left out to be asked for again, or 0.
	before uint64
	// older is how many responses of the stream for the type the server may have sent before it
	// read the request for the subscription. See saysAbsent.
	older uint64
	// ignoredDenialIn is the number of the response whose denial was ignored, or 0. See ignoresDenial.
	ignoredDenialIn uint64
	// repeats is how often the server was asked again before it answered. See crossed.
	repeats uint8
	// read says, of a resource that the server has sent, that it had read the request for the subscription before an
	// earlier stream ended.
	read bool
}

// isListed reports whether a request of this stream listed the subscription.
func (s *subscription) isListed() bool { return s.request > 0 }

// isDue reports whether the next request asks for the subscription.
func (s *subscription) isDue() bool { return s.State.IsDue(s.types.channel.dialect.Incremental) }

// step notes an event of the subscription.
func (s *subscription) step(e ads.Event) (r ads.Effect) {
	if s.State, r = ads.Next(s.State, e); r == ads.Ask {
		s.types.touch(s)
	}
	return r
}

// wanted reports whether it is still watched. A subscription stays after its last watch
// stopped until the server has that request: if a watch starts before that, the server does not
// notice, and would not send the resource again. A member is in no request, and never wanted.
func (s *subscription) wanted() bool { return s.types.channel.asksFor(s.resource) }

func (s *subscription) isCollection() bool { return s.resource.isCollection() }

// locator names the resource for the server.
func (s *subscription) locator() wire.Locator {
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
