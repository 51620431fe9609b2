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
	// next and prev are other subscriptions to the same name.
	next, prev *subscription
	// payload is the last valid version that this server sent, or nil, and lastError the error that it
	// has sent since, or nil. The cache has both too.
	payload   *payload
	lastError *lastError
	// taken is when, and with which version, the server last sent payload.
	taken stamp
	// offer is the offer of a response to the subscription. It is nil if the server was never
	// asked for variants.
	offer *offer
	// found is the number of the last search by which it was found.
	found uint64
	// deadline is when the resource timer fires, on the channel's stopwatch, or 0 while the request is being written.
	deadline stopwatchTime
}

func newSubscription(r *resource) *subscription {
	s := &subscription{resource: r}
	if r.asCollection != nil {
		r.asCollection.sub = s
	}
	return s
}

// Wanted implements ads.Subscriber.
func (s *subscription) Wanted() bool { return len(s.resource.watches) > 0 }

// IsCollection implements ads.Subscriber.
func (s *subscription) IsCollection() bool { return s.resource.asCollection != nil }

// Locator implements ads.Subscriber.
func (s *subscription) Locator() wire.Locator {
	return wire.Locator{Name: s.resource.key.name, Constraints: s.resource.constraints}
}

// known returns the decoded value of these very bytes, or nil: the version that
// the server sent last, or one in a cache of the authority, if it came from a server of
// the same features, so that the bytes mean the same.
func (s *subscription) known(it *item, server *bootstrap.Server) *payload {
	if s.payload.of(it, server) {
		return s.payload
	}
	return s.resource.known(it, server)
}

// known returns the version with these very bytes that a cache of the authority has, or
// nil.
func (r *resource) known(it *item, server *bootstrap.Server) *payload {
	if r.payload.of(it, server) {
		return r.payload
	}
	for _, l := range r.level.authority.levels {
		if l == r.level || l.channel == nil {
			continue
		}
		if twin := l.entryLike(r); twin != nil && twin.payload.of(it, server) {
			return twin.payload
		}
	}
	return nil
}

// inherits reports whether the resource that is in use is from another server or from disk.
func (s *subscription) inherits() bool { return s.payload == nil && s.resource.payload != nil }
