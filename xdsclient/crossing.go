package xdsclient

// In the state-of-the-world protocol a server ignores requests that answer an older
// response than its last one ("stale" ones: Envoy, xDS protocol, "ACK and NACK", "When
// to send an update"): the client will answer the last one too, and says then what it
// wants. So what happened in between is lost on the server. Of something that was left
// out and asked for again it takes no notice, and does not send it, and the client would
// wait until the resource timer.
//
// A response that comes after a request which left something out may have crossed it.
// Then the answer first repeats what was last listed, so that the server takes notice
// of what was left out; and what was asked for since the last response, and is not in
// this one, is left out and asked for once more. Types with FullStateInSotW need none of
// this: a response that crosses a request has all that the server believes to be
// subscribed to.

// maxRepeats bounds how often a subscription is asked for again for this reason. The
// client cannot tell a response that crossed its request from one that has nothing to do
// with it, and a server may be silent because it has nothing.
const maxRepeats = 4

// note takes notice of what a request leaves out that the last one listed.
func (ts *typeState) note(now *targets) {
	if ts.announced && !ts.typ.FullStateInSotW {
		ts.leftOut = ts.leftOut || !now.cover(&ts.listed)
	}
}

// crossed is told of a response, by its number among those of the channel, before it is
// answered.
func (ts *typeState) crossed(number uint64) {
	if ts.leftOut {
		ts.leftOut, ts.relist = false, true
		for s := range ts.subs.all() {
			pending := s.state == subscriptionSending || s.state == subscriptionRequested
			if pending && s.asked == ts.heard && s.seen != number && s.repeats < maxRepeats {
				s.repeats++
				s.repeat = true
				ts.touch(s)
			}
		}
	}
	ts.heard = number
}

// cover reports whether all that is in another list is in this one.
func (t *targets) cover(other *targets) bool {
	if len(t.locators) > 0 || len(other.locators) > 0 {
		return covers(t.locators, other.locators, locator.equal)
	}
	return covers(t.names, other.names, func(a, b string) bool { return a == b })
}

// covers reports whether all of part are in all. Both are in the same order.
func covers[T any](all, part []T, equal func(a, b T) bool) bool {
	for _, x := range all {
		if len(part) > 0 && equal(x, part[0]) {
			part = part[1:]
		}
	}
	return len(part) == 0
}
