package xdsclient

import "github.com/dynxds/dynxds/xdsclient/internal/ads"

import "github.com/dynxds/dynxds/xdsclient/dynparam"

// A watch always goes to the server, which may have a preferred variant. A cached variant
// that matches its constraints stands in if that brings no answer: a cache has to ask the
// server "before falling back to using the one it already has cached" (xRFC TP2, "Matching
// Behavior and Best Practices"). It stands in
//
//   - for a server that keeps silent until the resource timer;
//   - while no server can be reached. Fallback to another server (gRFC A71) comes first.
//
// The server's own answer for the subscription, even an error, is never replaced.

// standIn returns the subscription to the same name that has the preferred one of the
// variants that match, or nil. has returns the parameters of what a subscription has.
func (ts *typeState) standIn(s *subscription, has func(*subscription) (dynparam.Parameters, bool)) (best *subscription) {
	if s.members != nil {
		return nil
	}
	var preferred dynparam.Parameters
	c := s.resource.constraints
	for other := range ts.subs[s.resource.key.name].siblings() {
		parameters, ok := has(other)
		if other == s || !ok || !c.Match(parameters) {
			continue
		}
		if order, _ := c.Compare(parameters, preferred); best == nil || order > 0 {
			best, preferred = other, parameters
		}
	}
	return best
}

// sent is what this server has sent and not taken back since.
func (s *subscription) sent() (dynparam.Parameters, bool) {
	return s.taken.parameters, s.State == ads.Received && s.payload != nil
}

// usable is what the cache has, of whichever server, unless it does not exist any more.
func (s *subscription) usable() (dynparam.Parameters, bool) {
	r := s.resource
	return r.taken.parameters, r.payload != nil && (r.fault == nil || !r.fault.final())
}

// borrow has a resource of which nothing is cached, and of which the server has said
// nothing, use a cached variant of its name, also one from a level above. The subscriptions
// stay as they are: no server has sent it for them. It reports whether there is one.
func (l *level) borrow(r *resource) bool {
	silent := r.fault == nil || r.fault.Kind == KindTimeout
	if !l.authority.variants || r.payload != nil || !silent {
		return false
	}
	s := l.channel.subscriptionTo(r)
	var other *subscription
	for i := l.index; i >= 0 && other == nil; i-- {
		other = l.authority.levels[i].channel.typeState(r.key.typ).standIn(s, (*subscription).usable)
	}
	if other == nil {
		return false
	}
	from := other.resource
	r.client().infof("xDS %s %q with %v uses the cached variant %v, which matches, as no management server has sent one",
		r.key.typ.Name, r.key.name, r.constraints, from.taken.parameters)
	r.take(from.payload, from.taken, nil)
	return true
}
