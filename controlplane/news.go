package controlplane

import (
	"slices"
	"strings"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// news is what a delta client has to be told of one type. No name is in it
// twice.
type news struct {
	sub       *subscription
	resources []namedResource
	removed   []string
	errors    []namedError
	// answer makes a response of it even if there is nothing in it: a new
	// wildcard subscription is always answered.
	answer bool
}

// namedResource and namedError come under the name that the client uses.
type (
	namedResource struct {
		name     string
		resource *Resource
	}
	namedError struct {
		name string
		err  *resourceError
	}
)

func (n *news) empty() bool {
	return len(n.resources) == 0 && len(n.removed) == 0 && len(n.errors) == 0 && !n.answer
}

// sort makes responses the same in every run.
func (n *news) sort() {
	slices.SortFunc(n.resources, func(a, b namedResource) int { return strings.Compare(a.name, b.name) })
	slices.Sort(n.removed)
	slices.SortFunc(n.errors, func(a, b namedError) int { return strings.Compare(a.name, b.name) })
}

// envelope is about what an item of a response takes beside its strings.
const envelope = 32

// take moves what makes about limit bytes, and one item at least, out of n into
// a response.
func (n *news) take(limit int) *discoverypb.DeltaDiscoveryResponse {
	n.answer = false
	resp := &discoverypb.DeltaDiscoveryResponse{TypeUrl: n.sub.typeURL}
	room := limit
	fits := func(size int) bool {
		ok := room == limit || size <= room
		room -= size
		return ok
	}
	for len(n.resources) > 0 {
		next := n.resources[0]
		r := next.resource
		if !fits(envelope + len(next.name) + len(r.version) + len(r.packed.TypeUrl) + len(r.packed.Value)) {
			return resp
		}
		resp.Resources = append(resp.Resources, r.message(next.name))
		n.resources = n.resources[1:]
	}
	for len(n.removed) > 0 {
		if !fits(envelope + len(n.removed[0])) {
			return resp
		}
		resp.RemovedResources = append(resp.RemovedResources, n.removed[0])
		n.removed = n.removed[1:]
	}
	for len(n.errors) > 0 {
		next := n.errors[0].err.message(n.errors[0].name)
		if !fits(envelope + proto.Size(next)) {
			return resp
		}
		resp.ResourceErrors = append(resp.ResourceErrors, next)
		n.errors = n.errors[1:]
	}
	return resp
}

// makeBeforeBreak keeps the end of Clusters and of their assignments until
// everything else of the push was sent, as routes may refer to them until then.
// An error counts as an end: a client may drop the resource for it.
func makeBeforeBreak(all []news) []news {
	if len(all) < 2 {
		return all
	}
	var kept, ends []news
	for _, n := range all {
		if n.sub.typeURL == clusterType || n.sub.typeURL == endpointType {
			end := news{sub: n.sub, removed: n.removed, errors: n.errors}
			n.removed, n.errors = nil, nil
			if !end.empty() {
				ends = append(ends, end)
			}
		}
		if !n.empty() {
			kept = append(kept, n)
		}
	}
	return append(kept, ends...)
}

// teller makes news of one type out of what is due and what the client was told
// before.
type teller struct {
	t   *table
	sub *subscription
	// due says of each name whether it is to be sent even if the client was
	// told already.
	due  map[nameKey]bool
	news news
}

// tell takes what it returns for told. The caller holds Store.mu for reading.
func tell(t *table, due dueChanges) news {
	sub := due.sub
	sub.stream.mu.Lock()
	defer sub.stream.mu.Unlock()
	w := &teller{t: t, sub: sub, due: due.pending.names, news: news{sub: sub, answer: due.pending.all}}
	if due.pending.all {
		w.addAll(due.pending.allAgain)
	}
	w.openGlobs()
	for key, again := range w.due {
		if !key.isGlob() {
			w.look(key, again)
		}
	}
	w.news.sort()
	return w.news
}

func (w *teller) add(key nameKey, again bool) {
	if w.due == nil {
		w.due = map[nameKey]bool{}
	}
	w.due[key] = w.due[key] || again
}

// addAll makes everything due that the wildcard covers.
func (w *teller) addAll(again bool) {
	for key := range w.t.entries {
		if !key.isGlob() {
			w.add(key, again)
		}
	}
	for key, was := range w.sub.told {
		if was != absence && !key.isGlob() {
			w.add(key, again)
		}
	}
}

// openGlobs tells of the glob collections that are due, and makes the members
// due of those that are new to the client.
func (w *teller) openGlobs() {
	// opened says whether the members are sent even if they were told already.
	opened := map[string]bool{}
	for key, again := range w.due {
		if key.isGlob() && w.sub.named(key) {
			w.openGlob(key, again, opened)
		}
	}
	if len(opened) == 0 {
		return
	}
	for collection, again := range opened {
		for key := range w.t.members[collection] {
			w.add(key, again)
		}
	}
	for key, was := range w.sub.told {
		if again, ok := opened[key.collection]; ok && was != absence && !key.isGlob() {
			w.add(key, again)
		}
	}
}

func (w *teller) openGlob(key nameKey, again bool, opened map[string]bool) {
	was, known := w.sub.told[key]
	now := w.t.entries[key]
	switch {
	case now != nil && (again || !known || !was.sameVersion(now)):
		w.news.errors = append(w.news.errors, namedError{w.sub.names[key], now.err})
		w.sub.remember(key, now)
	case now == nil && (again || was != absence):
		// A client that was told of an error may have dropped the members, or
		// may still have some that are gone by now.
		opened[key.collection] = again || known
		w.sub.remember(key, absence)
		if len(w.t.members[key.collection]) == 0 {
			w.news.removed = append(w.news.removed, w.sub.names[key])
		}
	}
}

// look compares what is under a name with what the client was told.
func (w *teller) look(key nameKey, again bool) {
	sub := w.sub
	named := sub.named(key)
	was, known := sub.told[key]
	// Members of a collection that is in error are not told for its sake.
	inGlob := sub.inGlob(key) && w.t.entries[key.glob()] == nil
	if !named && !inGlob && !sub.interest.wildcard() {
		if again {
			w.lookGone(key, was, named) // the client let go of the name just now
		}
		return
	}
	now := w.t.entries[key]
	if now != nil && now.err != nil && !named && !inGlob {
		now = nil // TP3 has no errors for wildcard subscriptions
	}
	switch {
	case now == nil:
		if again || named && was != absence || !named && known {
			w.lookGone(key, was, named)
		}
	case known && !again && was.sameVersion(now):
		sub.remember(key, now)
	case now.err != nil:
		w.news.errors = append(w.news.errors, namedError{sub.spelling(key, now), now.err})
		sub.remember(key, now)
	default:
		w.news.resources = append(w.news.resources, namedResource{sub.spelling(key, now), now.resource})
		sub.remember(key, now)
	}
}

func (w *teller) lookGone(key nameKey, was *entry, named bool) {
	if named {
		w.news.removed = append(w.news.removed, w.sub.names[key])
		w.sub.remember(key, absence)
	} else if was != nil {
		w.news.removed = append(w.news.removed, was.name())
		delete(w.sub.told, key)
	}
}
