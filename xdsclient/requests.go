package xdsclient

import (
	"maps"
	"slices"
	"time"

	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// requests is the state of one type on one stream: what the server has been told and has said. From that and the
// subscriptions follows which request is due, in both protocols. In delta the work is proportional to the changes, not to the
// subscriptions.
type requests struct {
	replies ads.Replies
	repetition
	// responses counts the server's responses for the type, and asking says that a request since the
	// last one asked for something new.
	responses uint64
	asking    bool
	// probe has the first request ask for one resource, or in SotW for all of the type, even if the client has it: an answer is
	// wanted of a server that was unreachable.
	probe bool
	// rest are the changes, in order, that did not fit into the last delta request. Later ones wait for them.
	rest []*subscription
	// places has the subscription to the bare resource at each place of the last responses. A new or an ended subscription clears it.
	places []*subscription
	// listed is the list of the last request, sent or not. It is replaced, not changed. Delta
	// does not need it.
	listed wire.Targets
	// repeatPreviousList says that the next request has to repeat the list of the last one, without later
	// subscriptions: the response that it answers has resources that were not watched,
	// which were dropped, and a SotW server takes a resource that it has sent and that the request names for
	// known; or the response may have crossed a request.
	repeatPreviousList bool
	// repeatedPreviousList is the value of repeatPreviousList after the last response, for its repetitions.
	repeatedPreviousList bool
	crossings
}

// announced reports whether a request listed names. From then on an empty list unsubscribes;
// before, it would ask for every resource (Envoy, xDS protocol, "How the client
// specifies what resources to return").
func (ts *typeState) announced() bool { return ts.first > 0 }

// touch notes that a subscription became wanted or unwanted, or has to be asked for again.
func (ts *typeState) touch(s *subscription) {
	ts.disturb()
	ts.touched[s] = struct{}{}
}

// fullState reports whether a response has all subscribed resources of the type that the server has.
func (ts *typeState) fullState() bool {
	return ts.typ.FullStateInSotW && !ts.channel.dialect.Incremental
}

// serves reports whether the server can serve a subscription: only delta has collections.
func (ts *typeState) serves(s *subscription) bool {
	return ts.channel.dialect.Incremental || !s.isCollection()
}

// asked reports whether the server was asked on this stream for a subscription. An earlier answer of a delta
// server may be older than the subscription, and will be repeated.
func (ts *typeState) asked(s *subscription) bool {
	return !ts.channel.dialect.Incremental || s.State != ads.Unsent
}

func (ts *typeState) countResponse() {
	ts.responses++
	ts.asking = false
	ts.read = max(ts.read, ts.first) // it answers that one, or a later one
}

// endResponse adds the reply to a response. number counts the responses of the stream's owner.
// unasked says that the response had something that was not subscribed to, so that the reply
// must not list later subscriptions.
func (ts *typeState) endResponse(number uint64, r ads.Reply, unasked bool) error {
	// The reply to an earlier response may still be due, and have to list the same.
	ts.repeatPreviousList = ts.repeatPreviousList || unasked
	if !ts.channel.dialect.Incremental {
		ts.crossed(number)
	}
	ts.repeatedPreviousList = ts.repeatPreviousList
	return ts.replies.Add(r, ts.channel.dialect)
}

// replyAgain adds the reply to a repetition. It reports whether a request is due earlier.
func (ts *typeState) replyAgain(r ads.Reply) (due bool, err error) {
	ts.countResponse()
	ts.repeatPreviousList = ts.repeatPreviousList || ts.repeatedPreviousList
	if !ts.again {
		ts.again = true
		return true, ts.replies.Add(r, ts.channel.dialect)
	}
	return ts.replies.AddAgain(r, ts.channel.dialect)
}

// next returns the request that is due, with the subscriptions that it makes known to the server. If there is none it returns nil,
// and when a reply will be due: zero if none will. While changes of the subscriptions are held back, only replies are due, and they
// repeat the list of the last request.
func (ts *typeState) next(held bool) (r *wire.Request, fresh []*subscription, at time.Time) {
	due, at := ts.replies.Due()
	next := wire.Request{TypeURL: ts.typ.TypeURL}
	if ts.channel.dialect.Incremental {
		fresh, due = ts.nextDelta(&next, due, held)
	} else {
		fresh, due = ts.nextSotW(&next, due, held)
	}
	if !due {
		return nil, nil, at
	}
	return new(next), fresh, at // only a request that is due is allocated
}

// nextDelta fills in the request that is due. It either answers a response or has changes of the
// subscriptions: a server may ignore a request whose nonce is not that of its last response, and
// the changes in it would be lost; without a nonce it cannot be stale.
//
// Changes for which the request would be larger than servers accept wait for the next one. The first request of a stream is the only
// one that can claim versions, so resources whose versions do not fit into it are sent by the server again.
func (ts *typeState) nextDelta(r *wire.Request, reply, held bool) (fresh []*subscription, due bool) {
	first := !ts.announced()
	switch {
	case !first && reply:
		ts.replies.MoveTo(r)
		return nil, true
	case held, !first && len(ts.touched) == 0 && len(ts.rest) == 0:
		return nil, false
	}
	ts.number++
	changes := ts.rest
	if ts.rest = nil; len(changes) == 0 {
		changes = ts.changed()
	}
	var wanted, unwanted []*subscription
	for _, s := range changes {
		switch {
		case s.State == ads.Ended: // while it waited
		case s.wanted():
			wanted = append(wanted, s)
		case !first && (s.State != ads.Unsent || s.isListed()):
			unwanted = append(unwanted, s)
		default:
			ts.drop(s)
		}
	}
	size := 0
	full := func(s *subscription, more int) bool {
		more += s.locator().Size(ts.channel.dialect)
		if size > 0 && size+more > ts.limit {
			size = ts.limit // for what comes after it
			ts.rest = append(ts.rest, s)
			return true
		}
		size += more
		return false
	}
	if ts.channel.dialect.Locators && len(unwanted) > 0 {
		ts.forgetUnsubscribed()
	}
	for _, s := range unwanted {
		if full(s, 0) {
			continue
		}
		r.Unsubscribe.Add(s.locator(), ts.channel.dialect)
		if ts.channel.dialect.Locators {
			ts.noteUnsubscribed(s.locator())
		}
		ts.drop(s)
	}
	// A server that goes by names does not know that there is more than one subscription
	// to a name, and need not know that one of them has ended.
	r.Unsubscribe.Names = slices.DeleteFunc(r.Unsubscribe.Names, func(name string) bool { return ts.subs.first[name] != nil })
	for _, s := range wanted {
		if s.isListed() && !s.isDue() || full(s, ts.claims(s)) {
			continue
		}
		r.Subscribe.Add(s.locator(), ts.channel.dialect)
		if !s.isListed() {
			s.request = ts.number
		}
		if s.isDue() {
			fresh = append(fresh, s)
		}
	}
	if first && r.Subscribe.IsEmpty() {
		ts.replies.Clear()
		return nil, false
	}
	if r.Subscribe.IsEmpty() && r.Unsubscribe.IsEmpty() { // the server need not know of these
		return ts.nextDelta(r, reply, held)
	}
	if first {
		r.Cached = ts.versions()
		if ts.probe && len(r.Cached) > 0 {
			r.Cached[slices.Min(slices.Collect(maps.Keys(r.Cached)))] = ""
		}
	}
	ts.disturb()
	ts.noteSending(fresh)
	return fresh, true
}

// nextSotW fills in the request that is due. It answers the last response. reply says that a reply is due, and held that
// changes of the subscriptions are held back:
//
//	list before             changes     reply   list
//	none                    any, held   any     no request is due
//	none                    any         any     all that is subscribed to
//	any                     none, held  none    no request is due
//	any                     none, held  due     as before
//	any                     some        any     all that is subscribed to
//	any, to be repeated     some        any     as before: the changes wait for the reply, which waits no longer
func (ts *typeState) nextSotW(r *wire.Request, reply, held bool) (fresh []*subscription, due bool) {
	first := !ts.announced()
	changes := !held && (first || len(ts.touched) > 0)
	if !changes && (first || !reply) {
		return nil, false
	}
	ts.number++
	if changes && (first || !ts.repeatPreviousList) {
		var differs bool
		if fresh, differs = ts.listAll(); differs {
			ts.disturb()
		} else if !reply {
			return nil, false
		}
	} else {
		ts.unlist()
	}
	if first && ts.listed.IsEmpty() {
		ts.replies.Clear()
		return nil, false
	}
	r.Version, r.Nonce, r.All = ts.version, ts.replies.Nonce, ts.listed
	if first && (ts.probe || len(fresh) > 0) { // the server may take it for the version of all that is listed
		r.Version = ""
	}
	ts.replies.MoveTo(r)
	ts.noteSending(fresh)
	return fresh, true
}

// noteSending notes that a request is about to be sent.
func (ts *typeState) noteSending(fresh []*subscription) {
	for _, s := range fresh {
		s.deadline = 0
		s.step(ads.Listed)
		if s.older = ts.responses; ts.asking {
			s.older++
		}
	}
	ts.asking = ts.asking || len(fresh) > 0
	if !ts.announced() {
		ts.first = ts.number
	}
	ts.repeatPreviousList = false
}

// changed returns the subscriptions that may have changed since the last request, or all before the first, in order.
func (ts *typeState) changed() []*subscription {
	touched := ts.touched
	if len(touched) > 0 { // a map that was cleared stays large
		ts.touched = make(map[*subscription]struct{})
	}
	if !ts.announced() {
		return slices.Collect(ts.subs.inOrder())
	}
	return slices.SortedFunc(maps.Keys(touched), byLocator)
}

// byLocator is the order of subscriptions in requests.
func byLocator(a, b *subscription) int { return a.locator().Compare(b.locator()) }

// listAll brings the list up to date. It returns the subscriptions that the server does
// not know of, and whether the request tells it anything that the last one did not.
func (ts *typeState) listAll() (fresh []*subscription, differs bool) {
	for _, s := range ts.changed() {
		serves := ts.serves(s)
		if !s.isListed() && serves {
			ts.noteListed(s)
		}
		switch {
		case !s.wanted():
			ts.drop(s)
		case s.isDue() && serves:
			fresh = append(fresh, s)
		}
	}
	var list wire.Targets
	var without []string
	for s := range ts.subs.inOrder() {
		if !ts.serves(s) {
			continue
		}
		if ts.leaveOutToReask(s) {
			without = append(without, s.resource.key.name)
		} else {
			list.Add(s.locator(), ts.channel.dialect)
		}
	}
	if !ts.channel.dialect.Locators && len(without) > 0 { // a name goes with any of its subscriptions
		list.Names = slices.DeleteFunc(list.Names, func(name string) bool {
			_, found := slices.BinarySearch(without, name)
			return found
		})
	}
	differs = !ts.announced() || len(fresh) > 0 || !list.Equal(&ts.listed)
	if ts.announced() {
		list.Missing(&ts.listed, ts.channel.dialect, ts.noteUnsubscribed)
	}
	ts.listed = list
	return fresh, differs
}

// claims returns the size of the versions that the first request claims for a subscription. If that is too much for one
// request, it claims nothing. A collection that comes in a later request is not claimed either: no server would remove a
// member whose version it was not told.
func (ts *typeState) claims(s *subscription) int {
	if ts.announced() {
		if s.isCollection() && !s.isListed() {
			ts.forgetAnswers(s)
		}
		return 0
	}
	size := ts.versionsSize(s)
	if size > ts.limit {
		ts.forgetAnswers(s)
		return 0
	}
	return size
}
