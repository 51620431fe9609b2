package xdsclient

// A watch always asks the server, which may have a preferred variant. A cache has to ask the
// server "before falling back to using the one it already has cached" (xRFC TP2, "Matching
// Behavior and Best Practices"). So a cached variant that matches the constraints is used only
//
//   - if the server is silent until the resource timer expires;
//   - while no server can be reached. Fallback to another server (gRFC A71) comes first.
//
// The server's own answer for the subscription, even an error, is never replaced.

// otherVariant returns the subscription to the same name that has the preferred one of the
// variants in the cache that match, or nil.
func (s *subscription) otherVariant() (best *subscription) {
	if s.IsCollection() {
		return nil
	}
	var preferred choice
	index := 0
	for other := range s.types.subs.first[s.resource.key.name].siblings() {
		r := other.resource
		if other == s || r.payload == nil || r.taken.stored || r.err.final() {
			continue
		}
		index++
		preferred = preferred.with(offered{index: index, parameters: r.taken.parameters}, s.resource.constraints)
		if preferred.index == index {
			best = other
		}
	}
	return best
}

// useOtherVariant has a resource that is not cached, and that the server has not
// answered for, use another cached variant. The subscriptions stay as
// they are: no server has sent it for them. It reports whether there is one.
func (a *authority) useOtherVariant(r *resource) bool {
	silent := r.err == nil || r.err.Kind == KindTimeout
	if !a.knowsVariants() || r.payload != nil || !silent {
		return false
	}
	other := a.active().subscriptionTo(r).otherVariant()
	if other == nil {
		return false
	}
	from := other.resource
	a.client.infof("xDS %s %q with %v uses the cached variant %v, which matches, as no management server has sent one",
		r.key.typ.Name, r.key.name, r.constraints, from.taken.parameters)
	r.accept(from.payload, from.taken, nil)
	return true
}
