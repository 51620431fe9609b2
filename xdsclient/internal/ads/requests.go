package ads

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// A Subscriber is a subscription as its owner has it: a pointer to a struct that embeds
// Progress.
type Subscriber interface {
	comparable
	progress() *Progress
	// Locator names the resource for the server.
	Locator() wire.Locator
	// IsCollection reports whether that is a collection (xRFC TP1).
	IsCollection() bool
	// Wanted reports whether it is still watched. A subscription stays after its last watch
	// stopped until the server has that request: if a watch starts before that, the server does not
	// notice, and would not send the resource again.
	Wanted() bool
}

// Subscriptions are the subscriptions to one type, as their owner keeps them.
type Subscriptions[S Subscriber] interface {
	// Len is roughly how many there are.
	Len() int
	// All iterates them in any order. The one that was yielded may be dropped.
	All() iter.Seq[S]
	// First returns the first of the subscriptions to a name, which differ in their constraints, and Sibling
	// the one after s; nil if there is none.
	First(name string) S
	Sibling(s S) S
	// Drop ends a subscription, and calls Requests.Forget.
	Drop(s S)
	// Versions returns the versions of the resources that the client has from this server, by
	// name, as far as the request that is made lists their subscriptions. A resource that the server
	// has to send again has an empty one.
	Versions() map[string]string
	// VersionsSize is the size of the versions that Versions returns for a subscription, in bytes.
	VersionsSize(s S) int
	// ForgetAnswers forgets what the server has sent for a subscription, so that there are no versions.
	ForgetAnswers(s S)
}

// Requests decides which requests for one type are due, for both protocols. It compares the
// subscriptions with the last request. In delta the work is proportional to the
// changes, not to the subscriptions.
type Requests[S Subscriber] struct {
	// Dialect is how the server is spoken to. It may change between two streams.
	Dialect wire.Dialect
	// Version is the last that was accepted as a whole. It outlives the stream.
	Version string
	Replies Replies
	// Limit is the size from which delta requests are split, in bytes.
	Limit int

	typeURL string
	// fullState says that a SotW response has all resources of the type.
	fullState bool
	subs      Subscriptions[S]
	// touched are the subscriptions whose first watch began, or whose last one stopped, since
	// the last request. It has no meaning before the first one.
	touched map[S]struct{}

	// The fields below are the state of one stream.

	Repetition
	// rest has the changes that did not fit into the last request.
	rest rest[S]
	// responses counts the server's responses for the type, and asking says that a request since the
	// last one asked for something new.
	responses uint64
	asking    bool
	// probe has the first request leave out one version, that of the type in SotW, so that the
	// server has something to answer.
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

// NewRequests returns the requests for a type. fullState says that a SotW response carries all
// subscribed resources of the type.
func NewRequests[S Subscriber](typeURL string, fullState bool, d wire.Dialect, subs Subscriptions[S]) Requests[S] {
	return Requests[S]{typeURL: typeURL, fullState: fullState, Dialect: d, subs: subs, touched: make(map[S]struct{}), Limit: bounds.Request}
}

// Begin prepares for a new stream, on which nothing was said yet. It drops the subscriptions
// that are not wanted any more.
func (q *Requests[S]) Begin() {
	unread := false
	for s := range q.subs.All() {
		if !s.Wanted() {
			q.subs.Drop(s)
		} else {
			p := s.progress()
			p.read = p.State == Received && (p.read || q.HasRead(s))
			p.beginStream()
			unread = unread || q.mayBeUnread(p)
		}
	}
	if q.subs.Len() == 0 {
		q.Version = ""
	}
	// A server takes the version that a request has for that of all variants which the request asks for.
	q.probe, q.repeatPreviousList, q.repeatedPreviousList = unread, false, false
	q.responses, q.asking, q.rest = 0, false, rest[S]{}
	q.Repetition, q.Replies, q.crossings = Repetition{}, Replies{}, crossings{}
}

// Probe has the first request of the stream ask for one resource, or in SotW for all of the type,
// even if the client has it, as an answer is wanted of a server that was unreachable.
func (q *Requests[S]) Probe() { q.probe = true }

// announced reports whether a request listed names. From then on an empty list unsubscribes;
// before, it would ask for every resource (Envoy, xDS protocol, "How the client
// specifies what resources to return").
func (q *Requests[S]) announced() bool { return q.first > 0 }

// Touch notes that a subscription became wanted or unwanted, or has to be asked for again.
func (q *Requests[S]) Touch(s S) {
	q.Disturb()
	q.touched[s] = struct{}{}
}

// Step notes an event of a subscription.
func (q *Requests[S]) Step(s S, e Event) Effect {
	r := s.progress().Step(e)
	if r == Ask {
		q.Touch(s)
	}
	return r
}

// Forget notes that a subscription has ended.
func (q *Requests[S]) Forget(s S) {
	q.Disturb()
	q.Step(s, Closed)
	delete(q.touched, s)
}

// FullState reports whether a response has all subscribed resources of the type that the server has.
func (q *Requests[S]) FullState() bool { return q.fullState && !q.Dialect.Incremental }

// Serves reports whether the server can serve a subscription: only delta has collections.
func (q *Requests[S]) Serves(s S) bool { return q.Dialect.Incremental || !s.IsCollection() }

// Asked reports whether the server was asked on this stream for a subscription. An earlier answer of a delta
// server may be older than the subscription, and will be repeated.
func (q *Requests[S]) Asked(s S) bool {
	return !q.Dialect.Incremental || s.progress().State != Unsent
}

// BeginResponse notes that the work on a response begins, whose hash is given.
func (q *Requests[S]) BeginResponse(hash uint64) {
	q.countResponse()
	q.Repetition = Repetition{hash: hash, settled: true}
}

func (q *Requests[S]) countResponse() {
	q.responses++
	q.asking = false
	q.read = max(q.read, q.first) // it answers that one, or a later one
}

// Answered reports whether the server sent a response for the type on this stream.
func (q *Requests[S]) Answered() bool { return q.responses > 0 }

// EndResponse adds the reply to a response. number counts the responses of the stream's owner.
// unasked says that the response had something that was not subscribed to, so that the reply
// must not list later subscriptions.
func (q *Requests[S]) EndResponse(number uint64, r Reply, unasked bool) error {
	// The reply to an earlier response may still be due, and have to list the same.
	q.repeatPreviousList = q.repeatPreviousList || unasked
	if !q.Dialect.Incremental {
		q.crossed(number)
	}
	q.repeatedPreviousList = q.repeatPreviousList
	return q.Replies.add(r, q.Dialect)
}

// ReplyAgain adds the reply to a repetition. It reports whether a request is due earlier.
func (q *Requests[S]) ReplyAgain(r Reply) (due bool, err error) {
	q.countResponse()
	q.repeatPreviousList = q.repeatPreviousList || q.repeatedPreviousList
	if !q.again {
		q.again = true
		return true, q.Replies.add(r, q.Dialect)
	}
	return q.Replies.addAgain(r, q.Dialect)
}

// Next returns the request that is due, or nil, and the subscriptions that it makes known to
// the server. While changes of the subscriptions are held back, only replies are due, and they
// repeat the list of the last request.
func (q *Requests[S]) Next(held bool) (r *wire.Request, fresh []S) {
	due, _ := q.Replies.Due()
	next := wire.Request{TypeURL: q.typeURL}
	if q.Dialect.Incremental {
		fresh, due = q.nextDelta(&next, due, held)
	} else {
		fresh, due = q.nextSotW(&next, due, held)
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
func (q *Requests[S]) nextDelta(r *wire.Request, reply, held bool) (fresh []S, due bool) {
	if q.announced() && reply {
		q.Replies.moveTo(r)
		return nil, true
	}
	switch {
	case held, q.announced() && len(q.touched) == 0 && q.rest.isEmpty():
		return nil, false
	case q.rest.isEmpty():
		fresh, unwanted := q.settle()
		q.rest = rest[S]{subscribe: fresh, unsubscribe: unwanted}
		if !q.announced() {
			q.rest = rest[S]{subscribe: q.served()}
		}
	}
	q.number++
	first := !q.announced()
	fresh = q.nextPart(r)
	if first && r.Subscribe.IsEmpty() {
		q.Replies.clear()
		return nil, false
	}
	if r.Subscribe.IsEmpty() && r.Unsubscribe.IsEmpty() {
		return nil, false
	}
	if first {
		r.Cached = q.cached()
	}
	q.Disturb()
	q.noteSending(fresh)
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
func (q *Requests[S]) listDue(reply, held bool) sotwList {
	switch changes := !held && (!q.announced() || len(q.touched) > 0); {
	case changes && q.announced() && q.repeatPreviousList:
		return previousList
	case changes:
		return presentList
	case q.announced() && reply:
		return previousList
	default:
		return noList
	}
}

// nextSotW fills in the request that is due. It answers the last response.
func (q *Requests[S]) nextSotW(r *wire.Request, reply, held bool) (fresh []S, due bool) {
	switch q.listDue(reply, held) {
	case noList:
		return nil, false
	case previousList:
		q.number++
		q.unlist()
	case presentList:
		q.number++
		var differs bool
		if fresh, differs = q.listAll(); differs {
			q.Disturb()
		} else if !reply {
			return nil, false
		}
	}
	if !q.announced() && q.listed.IsEmpty() {
		q.Replies.clear()
		return nil, false
	}
	r.Version, r.Nonce, r.All = q.Version, q.Replies.nonce, q.listed
	if !q.announced() && (q.probe || len(fresh) > 0) { // the server may take it for the version of all that is listed
		r.Version = ""
	}
	q.Replies.moveTo(r)
	q.noteSending(fresh)
	return fresh, true
}

// noteSending notes that a request is about to be sent.
func (q *Requests[S]) noteSending(fresh []S) {
	for _, s := range fresh {
		p := s.progress()
		p.Step(Listed)
		if p.older = q.responses; q.asking {
			p.older++
		}
	}
	q.asking = q.asking || len(fresh) > 0
	if !q.announced() {
		q.first = q.number
	}
	q.repeatPreviousList = false
}

// settle goes through the subscriptions that changed since the last request, or through all
// before the first. It drops unwanted subscriptions, and returns them if the server
// knows of them, and the subscriptions that it does not know of.
func (q *Requests[S]) settle() (fresh, unwanted []S) {
	touched := maps.Keys(q.touched)
	if !q.announced() {
		touched = q.subs.All()
	}
	for s := range touched {
		p, serves := s.progress(), q.Serves(s)
		if p.request == 0 && serves && !q.Dialect.Incremental {
			q.noteListed(s)
		}
		switch {
		case !s.Wanted():
			if p.State != Unsent || p.Listed() {
				unwanted = append(unwanted, s)
			}
			q.subs.Drop(s)
		case (p.State.isNew() || q.Dialect.Incremental && p.State.isRepeat()) && serves:
			fresh = append(fresh, s)
		}
	}
	if len(q.touched) > 0 { // a map that was cleared stays large
		q.touched = make(map[S]struct{})
	}
	slices.SortFunc(fresh, byLocator[S])
	slices.SortFunc(unwanted, byLocator[S])
	return fresh, unwanted
}

// byLocator is the order of subscriptions in requests.
func byLocator[S Subscriber](a, b S) int { return a.Locator().Compare(b.Locator()) }

// targetsOf returns the targets of subscriptions, which are in order.
func targetsOf[S Subscriber](subs []S, d wire.Dialect) (t wire.Targets) {
	for _, s := range subs {
		t.Add(s.Locator(), d)
	}
	return t
}

// listAll brings the list up to date. It returns the subscriptions that the server does
// not know of, and whether the request tells it anything that the last one did not.
func (q *Requests[S]) listAll() (fresh []S, differs bool) {
	fresh, _ = q.settle()
	var list wire.Targets
	if q.Dialect.Locators {
		list = targetsOf(slices.DeleteFunc(q.served(), q.leaveOutToReask), q.Dialect)
	} else {
		list.Names = q.names(q.leaveOutToReask)
	}
	differs = !q.announced() || len(fresh) > 0 || !list.Equal(&q.listed)
	if q.announced() {
		list.Missing(&q.listed, q.Dialect, q.noteUnsubscribed)
	}
	q.listed = list
	return fresh, differs
}

// served returns the subscriptions that the server can serve, in order.
func (q *Requests[S]) served() []S {
	served := make([]S, 0, q.subs.Len())
	for s := range q.subs.All() {
		if q.Serves(s) {
			served = append(served, s)
		}
	}
	slices.SortFunc(served, byLocator[S])
	return served
}

// names returns the names that the server can serve, in order, without names of
// subscriptions that have to be left out.
func (q *Requests[S]) names(leaveOut func(S) bool) []string {
	names := make([]string, 0, q.subs.Len())
	var without []string
	for s := range q.subs.All() {
		if !q.Serves(s) {
			continue
		}
		name := s.Locator().Name
		names = append(names, name)
		if leaveOut(s) {
			without = append(without, name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(without) > 0 {
		slices.Sort(without)
		names = slices.DeleteFunc(names, func(name string) bool {
			_, found := slices.BinarySearch(without, name)
			return found
		})
	}
	return names
}

// cached returns the versions for the first request of a stream.
func (q *Requests[S]) cached() map[string]string {
	versions := q.subs.Versions()
	if q.probe && len(versions) > 0 {
		versions[slices.Min(slices.Collect(maps.Keys(versions)))] = ""
	}
	return versions
}

// String describes the state, for tests and debugging.
func (q *Requests[S]) String() string {
	return fmt.Sprintf("version %q, %d changes, repeats the previous list: %t", q.Version, len(q.touched), q.repeatPreviousList)
}
