package controlplane

import (
	"cmp"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// teller makes news of one type out of what is due and what the client was told
// before.
type teller struct {
	t   *table
	sub *subscription
	// due says of each topic whether it is to be sent even if the client was
	// told already.
	due  map[topic]bool
	news news
	// gone are the topics that the client has to be told of as removed, with the
	// names that it knows.
	gone map[topic]*entry
	// sent has what is in news, for byLocators, where several topics may share a
	// resource.
	sent map[namedResource]bool
	// failed has the topics whose errors are in news.
	failed map[topic]bool
}

// tell takes what it returns for told. The caller holds Store.mu for reading.
func tell(t *table, due dueChanges) news {
	sub := due.sub
	sub.stream.mu.Lock()
	defer sub.stream.mu.Unlock()
	w := &teller{t: t, sub: sub, due: due.pending.topics, news: news{sub: sub, answer: due.pending.all}}
	if due.pending.all {
		w.addAll(due.pending.allAgain)
	}
	w.openGlobs()
	for tp, again := range w.due {
		if !tp.name.isGlob() {
			w.look(tp, again)
		}
	}
	w.addRivals()
	w.remove()
	w.news.sort()
	return w.news
}

func (w *teller) add(tp topic, again bool) {
	if w.due == nil {
		w.due = map[topic]bool{}
	}
	w.due[tp] = w.due[tp] || again
}

// addAll makes everything due that the wildcard covers.
func (w *teller) addAll(again bool) {
	for key := range w.t.slots {
		if !key.isGlob() {
			w.addMember(key, again, w.sub.inWildcard)
		}
	}
	for tp, was := range w.sub.told {
		if was != absence && !tp.name.isGlob() && w.isMember(tp) {
			w.add(tp, again)
		}
	}
}

// addMember makes due what covered accepts of a member of a collection.
func (w *teller) addMember(key nameKey, again bool, covered func(topic, *entry) bool) {
	if w.sub.dialect == byNames {
		w.add(topic{name: key}, again)
		return
	}
	for _, e := range w.t.entries(key) {
		if tp := variantTopic(key, e.parameters()); covered(tp, e) {
			w.add(tp, again)
		}
	}
}

// isMember says whether the client may have been told of a topic for the sake of
// a collection.
func (w *teller) isMember(tp topic) bool {
	_, variant := tp.variant()
	return variant || w.sub.dialect == byNames
}

// openGlobs tells of the glob collections that are due, and makes the members
// due of those that are new to the client.
func (w *teller) openGlobs() {
	// opened says whether the members are sent even if they were told already.
	opened := map[topic]bool{}
	for tp, again := range w.due {
		if tp.name.isGlob() && w.sub.named(tp) {
			w.openGlob(tp, again, opened)
		}
	}
	if len(opened) == 0 {
		return
	}
	for glob, again := range opened {
		for key := range w.t.members[glob.name.collection] {
			w.addMember(key, again, func(tp topic, e *entry) bool { return w.inOne(glob, e) })
		}
	}
	for tp, was := range w.sub.told {
		if was == absence || tp.name.collection == "" || tp.name.isGlob() || !w.isMember(tp) {
			continue
		}
		for _, glob := range w.globsOf(tp.name) {
			if again, ok := opened[glob]; ok && w.inOne(glob, was) {
				w.add(tp, again)
			}
		}
	}
}

// globsOf returns the subscriptions to the glob collection that a name is in.
func (w *teller) globsOf(key nameKey) []topic {
	if w.sub.dialect == byNames {
		return []topic{{name: key.glob()}}
	}
	var globs []topic
	for glob := range w.sub.topics[key.glob()] {
		globs = append(globs, glob)
	}
	return globs
}

// inOne says whether one subscription to a glob collection covers a member.
func (w *teller) inOne(glob topic, e *entry) bool {
	if w.sub.dialect == byNames {
		return true
	}
	l := w.sub.names[glob]
	return l.refused == nil && l.constraints.Match(e.parameters())
}

func (w *teller) openGlob(tp topic, again bool, opened map[topic]bool) {
	// For the members, too, what the client is told is what there is.
	for member := range w.sub.kept {
		if member.name.collection == tp.name.collection {
			w.sub.kept.restore(member)
			w.add(member, false)
		}
	}
	was, known := w.sub.told[tp]
	now := w.sub.current(w.t, tp)
	switch {
	case now != nil && (again || !known || !was.sameVersion(now)):
		w.tellError(tp, now)
	case now == nil && (again || was != absence):
		// A client that was told of an error may have dropped the members, or
		// may still have some that are gone by now.
		opened[tp] = again || known
		w.sub.told.set(tp, absence)
		if w.isEmpty(tp) {
			w.markGone(tp, absence)
		}
	}
}

// isEmpty says whether a glob collection has no member for a subscription.
func (w *teller) isEmpty(glob topic) bool {
	for key := range w.t.members[glob.name.collection] {
		for _, e := range w.t.entries(key) {
			if w.inOne(glob, e) {
				return false
			}
		}
	}
	return true
}

// look compares what is under a topic with what the client was told.
func (w *teller) look(tp topic, again bool) {
	sub := w.sub
	was, known := sub.told[tp]
	now := sub.current(w.t, tp)
	if now == unanswered {
		sub.postpone(tp, again)
		return
	}
	named, is := sub.named(tp), cmp.Or(now, was)
	// Members of a collection that is in error are not told for its sake.
	inGlob := sub.inGlob(tp, is) && w.t.slots[tp.name.glob()] == nil
	if !named && !inGlob && !sub.inWildcard(tp, is) {
		if again {
			w.lookGone(tp, was, named) // the client let go of the name just now
		}
		return
	}
	if now != nil && now.err != nil && !named && !inGlob {
		now = nil // TP3 has no errors for wildcard subscriptions
	}
	switch {
	case now == nil:
		if again || named && was != absence || !named && known {
			w.lookGone(tp, was, named)
		}
	case known && !again && was.sameVersion(now):
		sub.told.set(tp, now)
	case now.err != nil:
		w.tellError(tp, now)
	default:
		w.tellResource(tp, now)
	}
}

func (w *teller) lookGone(tp topic, was *entry, named bool) {
	if named {
		w.markGone(tp, absence)
		w.sub.told.set(tp, absence)
	} else if was != nil {
		w.markGone(tp, was)
		delete(w.sub.told, tp)
	}
}

func (w *teller) markGone(tp topic, was *entry) {
	if w.gone == nil {
		w.gone = map[topic]*entry{}
	}
	w.gone[tp] = was
}

func (w *teller) tellError(tp topic, e *entry) {
	w.news.errors = append(w.news.errors, namedError{tp, w.sub.resourceName(tp, e), e.err})
	w.sub.told.set(tp, e)
	if w.failed == nil {
		w.failed = map[topic]bool{}
	}
	w.failed[tp] = true
}

func (w *teller) tellResource(tp topic, e *entry) {
	w.sub.told.set(tp, e)
	next := namedResource{w.sub.spelling(tp, e), e.resource}
	if w.sub.dialect == byLocators {
		if w.sent[next] {
			return
		}
		if w.sent == nil {
			w.sent = map[namedResource]bool{}
		}
		w.sent[next] = true
	}
	w.news.resources = append(w.news.resources, next)
}

// addRivals adds what the client needs to tell which of its subscriptions the
// resources are for.
func (w *teller) addRivals() {
	for i := 0; i < len(w.news.resources); i++ {
		w.sub.rivals(w.t, w.news.resources[i].resource, func(tp topic, e *entry) {
			switch {
			case w.failed[tp]:
			case e.err != nil:
				w.tellError(tp, e)
			default:
				w.tellResource(tp, e)
			}
		})
	}
}

// remove says what the client has no more. One that subscribes by locators is told of
// each subscription by its constraints: a removal by name alone would also be for
// subscriptions that are on their way to the server, which it says nothing of. Only a
// claim that nothing stands for is told by name, as nobody knows which variant it was.
func (w *teller) remove() {
	for tp, was := range w.gone {
		of := w.sub.resourceName(tp, was)
		if w.sub.dialect == byNames || was.claimed() {
			w.news.removed = append(w.news.removed, of.GetName())
			continue
		}
		w.news.lost = append(w.news.lost, namedLoss{tp, of})
		w.repair(tp, was)
	}
}

// repair is for a variant that is gone from a collection, of a name that the
// client subscribed to as well, with the very constraints that the removal has.
// It may take the removal for that of its subscription, which is told anew.
func (w *teller) repair(gone topic, was *entry) {
	if _, ok := gone.variant(); !ok || len(w.sub.topics[gone.name]) == 0 {
		return
	}
	exactly, err := dynparam.Exact(was.parameters().Map())
	if err != nil {
		return // no client could have sent them
	}
	tp := topic{gone.name, markConstraints + exactly.Key()}
	if w.sub.named(tp) && w.sub.current(w.t, tp) != nil {
		w.sub.postpone(tp, true)
	}
}
