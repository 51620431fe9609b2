package controlplane

import (
	"cmp"
	"slices"
	"time"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// composer makes a batch of one type from what is due and what the client knows, over SotW and delta.
type composer struct {
	sub   *subscription
	batch batch
	// sent are the resources in batch, for byLocators, where topics may share a resource.
	sent map[resourceID]bool
	// heartbeats are to be sent, but for those of resources that are sent.
	heartbeats []namedResource
	// failed are the topics whose errors are in batch.
	failed shrinkingMap[topic, bool]
}

// collect returns what is due, in push order, and records it as sent. The caller holds Store.mu for reading, and mu.
func (s *stream) collect() []batch {
	var all []batch
	for _, sub := range s.takeDue() {
		if b := sub.compose(); !b.empty() {
			all = append(all, b)
		}
	}
	return makeBeforeBreak(all)
}

// compose returns what to send of what is due, and records it as sent. The caller holds Store.mu for reading, and stream.mu.
func (sub *subscription) compose() batch {
	w := &composer{sub: sub, batch: batch{sub: sub}, sent: map[resourceID]bool{}}
	d := &sub.items
	if sub.withholds() { // due when its source answers
		return w.batch
	}
	sub.delivery.sending, d.changed = d.changed, time.Time{}
	d.promote(sub.stream.store.pace.due)
	if sub.mode == pushChanged {
		w.batch.resources = make([]namedResource, 0, len(d.now.m))
	}
	opened := map[nameKey][]opening{}
	for tp, how := range d.now.m { // to which members are added
		if !sub.isCollection(tp) {
			continue
		}
		if a := sub.askOf(tp); a != nil {
			w.open(tp, a, how, opened)
		}
	}
	w.addAllKnown(opened)
	due := d.now
	d.now = topics{}
	for tp, how := range due.m {
		switch {
		case tp == wholeList:
		case !sub.isCollection(tp):
			w.compose(tp, how)
		case sub.current(tp, sub.askOf(tp)) == awaited:
			d.waiting.set(tp, how)
		}
	}
	w.list(due.m[wholeList] != notDue)
	w.addRivals()
	for _, h := range w.heartbeats {
		w.send(h)
	}
	for _, lost := range w.batch.lost {
		if !lost.whole() {
			w.repair(lost.topic, lost.old)
		}
	}
	w.batch.sort()
	sub.stream.markDue(sub)
	sub.compareClaims()
	return w.batch
}

// add makes a topic due: with this batch, while collections are opened, and then with the next one.
func (w *composer) add(tp topic, how urgency) { w.sub.items.add(tp, how) }

// opening is a collection that the client is told of as a whole: the wildcard, or one of the subscriptions to a glob. Its members
// are sent as how says.
type opening struct {
	of  *ask
	how urgency
}

// addAllKnown makes what the client knows of opened collections due.
func (w *composer) addAllKnown(opened map[nameKey][]opening) {
	if len(opened) == 0 {
		return
	}
	for tp, old := range w.sub.allSent {
		if old == absence || tp.name.isGlob() || !w.isMember(tp) {
			continue
		}
		for _, o := range opened[wildcardKey] { // it may take anything for a member
			w.batch.noMembers = w.batch.noMembers && w.sub.named(tp)
			w.addKnown(tp, old, o.how)
		}
		for _, o := range opened[tp.name.glob()] {
			if w.inOne(o.of, old) {
				w.addKnown(tp, old, o.how)
			}
		}
	}
}

// addKnown makes what the client knows of a collection due: claims of what does not exist, if there are many, with later
// responses.
func (w *composer) addKnown(tp topic, old *entry, how urgency) {
	if w.sub.items.later.m[tp] != notDue {
		return
	}
	if old.claimed() && len(w.sub.items.now.m) >= w.sub.stream.store.pace.due && w.sub.table.slots[tp.name] == nil {
		w.sub.items.addLater(tp, how)
		return
	}
	w.add(tp, how)
}

// addMembers makes the members of an opened collection due, and reports whether there are any.
func (w *composer) addMembers(o opening) (any bool) {
	for key := range w.sub.table.members[o.of.name.collection] {
		if w.sub.addressing == byNames {
			any = true
			w.add(topic{name: key}, o.how)
			continue
		}
		for _, e := range w.sub.table.entries(key) {
			if w.inOne(o.of, e) {
				any = true
				w.add(variantTopic(key, e.parameters()), o.how)
			}
		}
	}
	return any
}

// isMember reports whether the client may know a topic as a member of a collection.
func (w *composer) isMember(tp topic) bool {
	_, variant := tp.variant()
	return variant || w.sub.addressing == byNames
}

// inOne reports whether a subscription to a collection covers a member.
func (w *composer) inOne(of *ask, e *entry) bool {
	return w.sub.addressing == byNames || of.refused == nil && of.matches(e)
}

// open composes a collection, and adds it to opened if it is new to the client.
func (w *composer) open(tp topic, a *ask, how urgency, opened map[nameKey][]opening) {
	now := w.sub.current(tp, a)
	if now == awaited {
		return
	}
	w.sub.acceptAwaiting(tp)
	if tp.name.isGlob() { // the client learns which members exist, so none is kept
		for member := range w.sub.items.kept.m {
			if member.name.collection == tp.name.collection {
				w.sub.restore(member)
				w.add(member, ifChanged)
			}
		}
	}
	old, again := w.sub.lastSent(tp, a), how == inAnyCase
	switch {
	case now != nil && (again || old == nil || !old.sameVersion(now)):
		w.addError(tp, a, now)
		w.removeMembers(tp)
		if w.sub.claims > 0 { // they may be of another subscription to the collection
			opened[tp.name] = append(opened[tp.name], opening{a, ifChanged})
		}
	case now == nil && (again || old != absence):
		// After an error the client may have dropped the members, or still have some
		// that no longer exist.
		o := opening{a, how}
		if old != nil {
			o.how = inAnyCase
		}
		opened[tp.name] = append(opened[tp.name], o)
		w.sub.setSent(tp, a, absence)
		switch any := w.addMembers(o); {
		case !tp.name.isGlob():
			w.batch.answer, w.batch.noMembers = true, true
		case !any:
			w.markRemoved(tp, a, absence)
		}
	}
}

// removeMembers removes the members of a collection in error that a client could take for those of
// its wildcard, which does not cover them.
func (w *composer) removeMembers(glob topic) {
	for tp, old := range w.sub.allSent {
		if tp.name.glob() == glob.name && w.isMember(tp) && !tp.name.isGlob() && w.sub.besideWildcard(tp, old) &&
			!w.sub.named(tp) && !w.sub.inCollection(tp, old, true) {
			w.composeRemoval(tp, nil, old)
		}
	}
}

// removeReplaced removes a variant that another one has replaced in a subscription by locator, if the
// client could take it for one that its wildcard covers.
func (w *composer) removeReplaced(tp topic, old, now *entry) {
	if w.sub.mode != pushDifference || w.sub.addressing != byLocators || old == nil || !w.sub.besideWildcard(tp, old) {
		return
	}
	if old.claimed() {
		entries := w.sub.table.entries(tp.name)
		at := slices.IndexFunc(entries, func(e *entry) bool { return e.asResource() != nil && e.resource.version == old.resource.version })
		if at < 0 {
			return
		}
		old = entries[at]
	}
	lost := variantTopic(tp.name, old.parameters())
	has := func(e *entry) bool { return e.asResource() != nil && variantTopic(tp.name, e.parameters()) == lost }
	for a := range w.sub.asksFor(tp.name) {
		if has(a.entryOf(w.sub)) {
			return
		}
	}
	inGlob := w.sub.inCollection(lost, old, true) && w.sub.current(lost, nil) != nil
	if !has(now) && !inGlob {
		w.composeRemoval(lost, nil, old)
	}
}

// compose compares what is under a topic with what the client knows.
func (w *composer) compose(tp topic, how urgency) {
	sub := w.sub
	a := sub.askOf(tp)
	if sub.mode != pushDifference && (a == nil || sub.isWildcard(tp) && a.refused == nil) {
		return // SotW responses say nothing about single members of a wildcard
	}
	old, now := sub.lastSent(tp, a), sub.current(tp, a)
	if tp.which == markVariant && old.claimed() && !w.mayRemove(tp.name) {
		return
	}
	if now == awaited {
		if how == inAnyCase {
			sub.items.waiting.set(tp, how) // so that the answer is sent, whatever it is
		}
		return
	}
	if a != nil {
		w.removeReplaced(tp, old, now)
	} else {
		is := cmp.Or(now, old)
		inError := tp.name.collection != "" && sub.table.slots[tp.name.glob()] != nil // its members are not sent as members
		if inError || !sub.inCollection(tp, is, false) {
			if how == inAnyCase { // the client has just unsubscribed
				w.composeRemoval(tp, nil, old)
			}
			return
		}
		if !sub.inCollection(tp, is, true) { // it is closed, and makes the topic due when it opens
			return
		}
		if now != nil && now.err != nil && tp.name.collection == "" {
			now = nil // TP3 has no errors for wildcard subscriptions
		}
	}
	if now == nil {
		w.composeAbsence(tp, a, old, how)
	} else {
		w.composeEntry(tp, a, old, now, how)
	}
}

// composeAbsence tells the client that a topic has nothing, if it does not know that.
func (w *composer) composeAbsence(tp topic, a *ask, old *entry, how urgency) {
	switch {
	case w.sub.mode == pushDifference:
		if a == nil || how == inAnyCase || old != absence {
			w.composeRemoval(tp, a, old)
		}
	case w.sub.stream.reportsAbsence && old != absence:
		l := w.sub.locator(a)
		w.batch.errors = append(w.batch.errors, namedError{tp, l.resourceName(w.sub.addressing), notFound(w.sub.typeURL, l.name)}) // SotW has no removals
		w.sub.setSent(tp, a, absence)
	case old == nil || old.err == nil: // the client is not told, and keeps an error
		w.sub.setSent(tp, a, absence)
	}
}

// composeEntry tells the client of a resource, of an error in its place, or of a new error beside a resource that the client has.
func (w *composer) composeEntry(tp topic, a *ask, old, now *entry, how urgency) {
	sub := w.sub
	sameBeside := old != nil && old.beside.same(now.beside)
	onlyBeside := now.beside != nil && sub.mode != pushAll
	switch {
	case old != nil && how < inAnyCase && old.sameVersion(now) && (sameBeside || onlyBeside):
		sub.setSent(tp, a, now)
		if !sameBeside {
			w.batch.errors = append(w.batch.errors, namedError{tp, sub.resourceName(a, now), now.beside})
		}
		if r := now.resource; how == forHeartbeat && r != nil && r.ttl > 0 {
			w.heartbeats = append(w.heartbeats, namedResource{sub.spelling(a, now), r.heartbeat()})
		}
	case now.err != nil:
		w.addError(tp, a, now)
	default:
		w.addResource(tp, a, now)
	}
}

// mayRemove reports whether a removal by a name alone says nothing wrong of another subscription to the name or its collection. Errors of
// these go with it.
func (w *composer) mayRemove(name nameKey) bool {
	if w.sub.hasOf(name) || w.sub.awaitsCollection(name) {
		return false
	}
	for a := range w.sub.asksFor(name) {
		if e := a.entryOf(w.sub); e.asError() != nil {
			w.addError(w.sub.topicOf(a), a, e)
		}
	}
	return true
}

func (w *composer) composeRemoval(tp topic, a *ask, old *entry) {
	if a != nil {
		w.markRemoved(tp, a, absence)
		w.sub.setSent(tp, a, absence)
	} else if old != nil {
		w.markRemoved(tp, nil, old)
		w.sub.forgetSent(tp)
	}
}

// markRemoved adds a removal. For a client that subscribes by locators it names a subscription
// with its constraints: a removal by name alone would also apply to subscriptions that are on
// their way to the server.
func (w *composer) markRemoved(tp topic, a *ask, old *entry) {
	w.batch.lost = append(w.batch.lost, namedLoss{tp, w.sub.resourceName(a, old), old})
}

// addError adds an error, once.
func (w *composer) addError(tp topic, a *ask, e *entry) {
	if w.failed.m[tp] {
		return
	}
	w.batch.errors = append(w.batch.errors, namedError{tp, w.sub.resourceName(a, e), e.err})
	w.sub.setSent(tp, a, e)
	w.failed.set(tp, true)
}

func (w *composer) addResource(tp topic, a *ask, e *entry) {
	w.sub.setSentResource(tp, a, e)
	if w.sub.mode == pushAll {
		return // list has it
	}
	if e.beside != nil {
		w.add(tp, ifChanged) // in one response with the error, the resource would count
	}
	w.batch.noMembers = w.batch.noMembers && (tp.name.collection != "" || !w.sub.inCollection(tp, e, true))
	next := namedResource{name: e.name(), resource: e.resource}
	if a != nil {
		next.name = w.sub.locator(a).name
	}
	w.send(next)
}

// send adds a resource, once.
func (w *composer) send(next namedResource) {
	if w.sub.addressing == byLocators {
		id := next.resource.id()
		if id.name = next.name; w.sent[id] {
			return
		}
		w.sent[id] = true
	}
	w.batch.resources = append(w.batch.resources, next)
}

// addRivals adds what the client needs to assign the resources to its subscriptions.
func (w *composer) addRivals() {
	if w.sub.addressing == byNames {
		return
	}
	for _, r := range w.batch.complete {
		w.addRivalsOf(r)
	}
	for i := 0; i < len(w.batch.resources); i++ {
		w.addRivalsOf(w.batch.resources[i].resource)
	}
}

// addRivalsOf adds the subscriptions by name that a resource, which is about to be sent, matches although they have another entry, with that
// entry. It must be sent beside the resource: the client gives a resource to every subscription that it matches, unless the response
// has one to prefer, or an error.
func (w *composer) addRivalsOf(r *Resource) {
	for a := range w.sub.asksFor(r.key) {
		tp := w.sub.topicOf(a)
		if a.refused != nil || !a.constraints.Match(r.parameters) || w.failed.m[tp] {
			continue
		}
		switch e := w.sub.current(tp, a); {
		case e == nil || e == awaited || r.same(e.resource):
		case e.err != nil:
			w.addError(tp, a, e)
		default:
			w.addResource(tp, a, e)
		}
	}
}

// repair sends a subscription again after the removal of a variant from a collection, if its name
// and constraints are exactly those of the removal: the client may apply it to both.
func (w *composer) repair(lost topic, old *entry) {
	if _, ok := lost.variant(); !ok || w.sub.count(lost.name) == 0 {
		return
	}
	exactly, err := dynparam.Exact(old.parameters().Map())
	if err != nil {
		return // no client can have sent these constraints
	}
	tp := topic{lost.name, markConstraints + exactly.Key()}
	if a := w.sub.askOf(tp); a != nil && w.sub.current(tp, a) != nil {
		w.add(tp, inAnyCase)
	}
}
