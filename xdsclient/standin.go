package xdsclient

import (
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// A watch always asks the server, which may have a preferred variant. A cache has to ask the
// server "before falling back to using the one it already has cached" (xRFC TP2, "Matching
// Behavior and Best Practices"). So a cached variant that matches the constraints is used only
//
//   - if the server is silent until the resource timer expires;
//   - while no server can be reached. Fallback to another server (gRFC A71) comes first.
//
// The server's own answer for the subscription, even an error, is never replaced.

// otherVariant returns the subscription to the same name that has the preferred one of the
// variants that match, or nil. has returns the parameters of a subscription's variant.
func (s *subscription) otherVariant(has func(*subscription) (dynparam.Parameters, bool)) (best *subscription) {
	if s.isCollection() {
		return nil
	}
	var preferred choice
	index := 0
	for other := range s.types.subs.first[s.resource.key.name].siblings() {
		parameters, ok := has(other)
		if other == s || !ok {
			continue
		}
		index++
		preferred = preferred.with(offered{index: index, parameters: parameters}, s.resource.constraints)
		if preferred.index == index {
			best = other
		}
	}
	return best
}

// sent is the variant that this server has sent and not removed since.
func (s *subscription) sent() (dynparam.Parameters, bool) {
	return s.taken.parameters, s.State == ads.Received && s.payload != nil
}

// usable is the variant that the cache has, from any server, unless it no longer exists.
func (s *subscription) usable() (dynparam.Parameters, bool) {
	r := s.resource
	return r.taken.parameters, r.payload != nil && !r.taken.stored && !r.err.final()
}

// useOtherVariant has a resource that is not cached, and that the server has not
// answered for, use another cached variant. The subscriptions stay as
// they are: no server has sent it for them. It reports whether there is one.
func (a *authority) useOtherVariant(r *resource) bool {
	silent := r.err == nil || r.err.Kind == KindTimeout
	if !a.knowsVariants() || r.payload != nil || !silent {
		return false
	}
	other := a.active().subscriptionTo(r).otherVariant((*subscription).usable)
	if other == nil {
		return false
	}
	from := other.resource
	a.client.infof("xDS %s %q with %v uses the cached variant %v, which matches, as no management server has sent one",
		r.key.typ.Name, r.key.name, r.constraints, from.taken.parameters)
	r.accept(from.payload, from.taken, nil)
	return true
}
