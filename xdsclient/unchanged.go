package xdsclient

import "hash/maphash"

// recognizer finds the subscription of a bare resource, whose name is in its bytes, without
// decoding it.
type recognizer struct {
	ch    *serverChannel
	types *typeState
	// last is that of the last bare resource that was found unchanged.
	last *subscription
}

// subscriptionOf returns a subscription that has these very bytes of a bare resource, or nil.
// Servers keep their order, so it first tries the one that followed the last one in the
// previous response.
func (rc *recognizer) subscriptionOf(it *item) *subscription {
	if it.Err != nil {
		return nil
	}
	if rc.last != nil {
		if s := rc.last.after; s != nil && s.hash != 0 && s.known(it, rc.ch.server) != nil {
			it.hash, rc.last = s.hash, s
			return s
		}
	}
	it.hash = maphash.Bytes(rc.ch.client.seed, it.bytes())
	s := rc.types.withBytesOf(it)
	if s == nil {
		s = rc.findInOtherLevels(it)
	}
	if s != nil {
		if rc.last != nil {
			rc.last.after = s
		}
		rc.last = s
	}
	return s
}

// findInOtherLevels returns the subscription for which another level of its authority has the
// very bytes of a bare resource, or nil.
func (rc *recognizer) findInOtherLevels(it *item) *subscription {
	for l := range rc.ch.levels {
		for _, other := range l.authority.levels {
			if other == l || other.channel == nil {
				continue
			}
			ts := other.channel.typeStateOf(rc.types.typ.TypeURL)
			if ts == nil || ts.byHash[it.hash] == nil {
				continue
			}
			s := rc.types.subs.get(ts.byHash[it.hash].resource.key)
			if s != nil && s.known(it, rc.ch.server) != nil {
				rc.types.index(s, it.hash)
				return s
			}
		}
	}
	return nil
}

// finish ends the order of the response: a subscription behind the last one may have been
// removed, and would be kept in memory.
func (rc *recognizer) finish() {
	if rc.last != nil {
		rc.last.after = nil
	}
}
