package xdsclient

import (
	"maps"
	"slices"

	"github.com/dynxds/dynxds/xdsclient/internal/ads"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// requests is what goes on for one type on one stream: what of it the server has been told and has said. From that and the
// subscriptions follows which request is due, in both protocols. In delta the work is proportional to the changes, not to the
// subscriptions.
type requests struct {
	replies ads.Replies
	repetition
	// rest has the changes that did not fit into the last request.
	rest rest
	// responses counts the server's responses for the type, and asking says that a request since the
	// last one asked for something new.
	responses uint64
	asking    bool
	// probe has the first request ask for one resource, or in SotW for all of the type, even if the client has it: an answer is
	// wanted of a server that was unreachable.
	probe bool
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

// beginResponse notes that the work on a response begins, whose hash is given.
func (ts *typeState) beginResponse(hash uint64) {
	ts.countResponse()
	ts.repetition = repetition{hash: hash, settled: true}
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

// next returns the request that is due, or nil, and the subscriptions that it makes known to
// the server. While changes of the subscriptions are held back, only replies are due, and they
// repeat the list of the last request.
func (ts *typeState) next(held bool) (r *wire.Request, fresh []*subscription) {
	due, _ := ts.replies.Due()
	next := wire.Request{TypeURL: ts.typ.TypeURL}
	if ts.channel.dialect.Incremental {
		fresh, due = ts.nextDelta(&next, due, held)
	} else {
		fresh, due = ts.nextSotW(&next, due, held)
	}
	if !due {
		return nil, nil
	}
	request := next // only a request that is due is allocated
	return &request, fresh
}

// nextDelta fills in the request that is due. It either answers a response or has changes of the
// subscriptions: a server may ignore a request whose nonce is not that of its last response, and
// the changes in it would be lost; without a nonce it cannot be stale.
func (ts *typeState) nextDelta(r *wire.Request, reply, held bool) (fresh []*subscription, due bool) {
	if ts.announced() && reply {
		ts.replies.MoveTo(r)
		return nil, true
	}
	switch {
	case held, ts.announced() && len(ts.touched) == 0 && ts.rest.isEmpty():
		return nil, false
	case ts.rest.isEmpty():
		fresh, unwanted := ts.settle()
		ts.rest = rest{subscribe: fresh, unsubscribe: unwanted}
		if !ts.announced() {
			ts.rest = rest{subscribe: ts.served()}
		}
	}
	ts.number++
	first := !ts.announced()
	fresh = ts.nextPart(r)
	if first && r.Subscribe.IsEmpty() {
		ts.replies.Clear()
		return nil, false
	}
	if r.Subscribe.IsEmpty() && r.Unsubscribe.IsEmpty() {
		return nil, false
	}
	if first {
		r.Cached = ts.cached()
	}
	ts.disturb()
	ts.noteSending(fresh)
	return fresh, true
}

// sotwList is which list the SotW request has that is due.
type sotwList uint8

const (
	// noList: no request is due.
	noList sotwList = iota
	// previousList: the request repeats the list of the last one.
	previousList
	// presentList: the request lists all that is subscribed to.
	presentList
)

// listDue returns which list is due. reply says that a reply is due, and held that changes of the subscriptions are
// held back:
//
//	list before             changes     reply   due
//	none                    any, held   any     none
//	none                    any         any     present
//	any                     none, held  none    none
//	any                     none, held  due     previous
//	any                     some        any     present
//	any, to be repeated     some        any     previous: the changes wait for the reply, which waits no longer
func (ts *typeState) listDue(reply, held bool) sotwList {
	switch changes := !held && (!ts.announced() || len(ts.touched) > 0); {
	case changes && ts.announced() && ts.repeatPreviousList:
		return previousList
	case changes:
		return presentList
	case ts.announced() && reply:
		return previousList
	default:
		return noList
	}
}

// nextSotW fills in the request that is due. It answers the last response.
func (ts *typeState) nextSotW(r *wire.Request, reply, held bool) (fresh []*subscription, due bool) {
	switch ts.listDue(reply, held) {
	case noList:
		return nil, false
	case previousList:
		ts.number++
		ts.unlist()
	case presentList:
		ts.number++
		var differs bool
		if fresh, differs = ts.listAll(); differs {
			ts.disturb()
		} else if !reply {
			return nil, false
		}
	}
	if !ts.announced() && ts.listed.IsEmpty() {
		ts.replies.Clear()
		return nil, false
	}
	r.Version, r.Nonce, r.All = ts.version, ts.replies.Nonce, ts.listed
	if !ts.announced() && (ts.probe || len(fresh) > 0) { // the server may take it for the version of all that is listed
		r.Version = ""
	}
	ts.replies.MoveTo(r)
	ts.noteSending(fresh)
	return fresh, true
}

// noteSending notes that a request is about to be sent.
func (ts *typeState) noteSending(fresh []*subscription) {
	for _, s := range fresh {
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

// settle goes through the subscriptions that changed since the last request, or through all
// before the first. It drops unwanted subscriptions, and returns them if the server
// knows of them, and the subscriptions that it does not know of.
func (ts *typeState) settle() (fresh, unwanted []*subscription) {
	touched := maps.Keys(ts.touched)
	if !ts.announced() {
		touched = ts.subs.all()
	}
	for s := range touched {
		serves := ts.serves(s)
		if !s.isListed() && serves && !ts.channel.dialect.Incremental {
			ts.noteListed(s)
		}
		switch {
		case !s.wanted():
			if s.State != ads.Unsent || s.isListed() {
				unwanted = append(unwanted, s)
			}
			ts.drop(s)
		case (s.State.IsNew() || ts.channel.dialect.Incremental && s.State.IsRepeat()) && serves:
			fresh = append(fresh, s)
		}
	}
	if len(ts.touched) > 0 { // a map that was cleared stays large
		ts.touched = make(map[*subscription]struct{})
	}
	slices.SortFunc(fresh, byLocator)
	slices.SortFunc(unwanted, byLocator)
	return fresh, unwanted
}

// byLocator is the order of subscriptions in requests.
func byLocator(a, b *subscription) int { return a.locator().Compare(b.locator()) }

// listAll brings the list up to date. It returns the subscriptions that the server does
// not know of, and whether the request tells it anything that the last one did not.
func (ts *typeState) listAll() (fresh []*subscription, differs bool) {
	fresh, _ = ts.settle()
	var list wire.Targets
	var without []string
	for _, s := range ts.served() {
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

// served returns the subscriptions that the server can serve, in order.
func (ts *typeState) served() []*subscription {
	served := make([]*subscription, 0, ts.subs.size)
	for s := range ts.subs.all() {
		if ts.serves(s) {
			served = append(served, s)
		}
	}
	slices.SortFunc(served, byLocator)
	return served
}

// cached returns the versions for the first request of a stream.
func (ts *typeState) cached() map[string]string {
	versions := ts.versions()
	if ts.probe && len(versions) > 0 {
		versions[slices.Min(slices.Collect(maps.Keys(versions)))] = ""
	}
	return versions
}
