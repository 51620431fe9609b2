package controlplane

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/typeurl"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// batch is what to send of one type. No topic is in it twice.
type batch struct {
	sub *subscription
	// version is the version of the responses. nonce is the nonce of a SotW response, which has the whole batch.
	version, nonce string
	// complete are all resources of a SotW response that has to be complete, and before those of the last one, both ordered by
	// name. resources are those of any other.
	complete, before []*Resource
	resources        []namedResource
	lost             []namedLoss
	errors           []namedError
	// answer forces a response even if it is empty: that of a new wildcard subscription, and a complete one. noMembers says that the wildcard has no members, and that the client knows of none: then an empty response goes
	// first, as removals alone could be for names that the client asks for.
	answer, noMembers bool
}

// namedResource, namedLoss and namedError have the name that the client uses, the latter two
// with the constraints of the subscription if there are any.
type (
	namedResource struct {
		name     string
		resource *Resource
	}
	namedLoss struct {
		topic topic
		of    *discoverypb.ResourceName
		// old is what the client knows: absence if it has asked for it.
		old *entry
	}
	namedError struct {
		topic topic
		of    *discoverypb.ResourceName
		err   *resourceError
	}
)

// whole reports whether the removal is by name alone: the client knows no constraints, or the variant of a claim that matches nothing is
// unknown.
func (n namedLoss) whole() bool { return n.topic.which == "" || n.old.claimed() }

func (n *batch) empty() bool {
	return len(n.resources) == 0 && len(n.lost) == 0 && len(n.errors) == 0 && !n.answer
}

// sort makes responses deterministic.
func (n *batch) sort() {
	slices.SortFunc(n.resources, func(a, b namedResource) int {
		return cmp.Or(strings.Compare(a.name, b.name), byName(a.resource, b.resource))
	})
	slices.SortFunc(n.lost, func(a, b namedLoss) int {
		return cmp.Or(compareNames(a.of, b.of), strings.Compare(a.topic.which, b.topic.which))
	})
	n.lost = slices.CompactFunc(n.lost, func(a, b namedLoss) bool {
		return compareNames(a.of, b.of) == 0 && (a.topic == b.topic || a.whole() && b.whole())
	})
	sortErrors(n.errors)
}

func sortErrors(errs []namedError) {
	slices.SortFunc(errs, func(a, b namedError) int {
		return cmp.Or(compareNames(a.of, b.of), strings.Compare(a.topic.which, b.topic.which))
	})
}

func compareNames(a, b *discoverypb.ResourceName) int {
	return strings.Compare(a.GetName(), b.GetName())
}

// envelopeSize is the approximate size of an item of a response without its strings.
const envelopeSize = 32

// size is the approximate size of the resource in a response, without its name.
func (r *Resource) size() int {
	return envelopeSize + len(r.version) + len(r.parameters.Key()) + len(r.packed.GetTypeUrl()) + len(r.packed.GetValue())
}

// nextResponse moves items of about Options.MaxResponseSize, at least one, from n into a response. Beside the removal of what the client has asked
// for it has an error with the text of Options.Absence, for clients that know errors.
func (n *batch) nextResponse() *discoverypb.DeltaDiscoveryResponse {
	resp := &discoverypb.DeltaDiscoveryResponse{TypeUrl: n.sub.typeURL}
	n.answer = false
	if n.noMembers {
		n.noMembers = false
		return resp
	}
	st := n.sub.stream
	limit := st.opts.MaxResponseSize
	room := limit
	fits := func(size int) bool {
		ok := room == limit || size <= room
		room -= size
		return ok
	}
	for i := 0; len(n.resources) > 0; i++ {
		next := n.resources[0]
		// Variants of one name stay together: the client chooses among all of them.
		together := i > 0 && resp.Resources[i-1].Name == next.name
		if !fits(next.resource.size()+len(next.name)) && !together {
			return resp
		}
		resp.Resources = append(resp.Resources, next.resource.message(next.name, n.sub.addressing))
		n.resources = n.resources[1:]
	}
	for ; len(n.lost) > 0; n.lost = n.lost[1:] {
		lost := n.lost[0]
		if !fits(envelopeSize + proto.Size(lost.of)) {
			return resp
		}
		if lost.whole() {
			resp.RemovedResources = append(resp.RemovedResources, lost.of.GetName())
		} else {
			resp.RemovedResourceNames = append(resp.RemovedResourceNames, lost.of)
		}
		if lost.old != absence {
			continue
		}
		if why := st.absenceText(n.sub.typeURL, lost.of.GetName()); why != nil {
			message := why.message(lost.of)
			room -= envelopeSize + proto.Size(message)
			resp.ResourceErrors = append(resp.ResourceErrors, message)
		}
	}
	for ; len(n.errors) > 0; n.errors = n.errors[1:] {
		next := n.errors[0].err.message(n.errors[0].of)
		if !fits(envelopeSize + proto.Size(next)) {
			break
		}
		resp.ResourceErrors = append(resp.ResourceErrors, next)
	}
	return resp
}

// makeBeforeBreak moves the removals of Clusters and their assignments to the end of the push,
// as routes may refer to them until then. An error counts as a removal: a client may drop the
// resource for it.
func makeBeforeBreak(all []batch) []batch {
	if len(all) < 2 {
		return all
	}
	var begin, end []batch
	for _, n := range all {
		first, last := n.split()
		begin, end = append(begin, first), append(end, last)
	}
	return slices.DeleteFunc(append(begin, end...), func(n batch) bool { return n.empty() })
}

// split divides a batch into what is sent in its turn and what is sent last, each of which may be empty.
func (n batch) split() (first, last batch) {
	switch {
	case n.sub.typeURL != typeurl.Cluster && n.sub.typeURL != typeurl.Endpoints:
		return n, batch{}
	case n.sub.mode == pushAll:
		return n.splitComplete()
	}
	last = batch{sub: n.sub, lost: n.lost, errors: n.errors}
	n.lost, n.errors = nil, nil
	return n, last
}

// splitComplete is split for a complete response. If there are both deleted Clusters and new ones, Clusters are sent twice: with
// the deleted ones, and at the end without. The caller holds Store.mu for reading, and stream.mu.
func (n batch) splitComplete() (first, last batch) {
	deleted, anyNew := compare(n.before, n.complete)
	deleted = slices.DeleteFunc(deleted, func(r *Resource) bool { return !n.sub.wantsName(r) || hasName(n.complete, r.name) })
	switch {
	case len(deleted) == 0:
		return n, batch{}
	case !anyNew:
		return batch{}, n
	}
	first = n
	first.complete = inOrder(slices.Concat(n.complete, deleted))
	// The deleted Clusters may match subscriptions that have errors.
	w := &composer{sub: n.sub, batch: first}
	for _, e := range n.errors {
		w.failed.set(e.topic, true)
	}
	w.addRivals()
	n.errors = w.batch.errors
	n.sort()
	first.errors = nil
	return first, n
}

// compare returns what only before has, and whether after has anything new. Both are ordered by
// name.
func compare(before, after []*Resource) (deleted []*Resource, anyNew bool) {
	for len(before) > 0 && len(after) > 0 {
		switch order := byName(before[0], after[0]); {
		case order < 0:
			deleted = append(deleted, before[0])
			before = before[1:]
		case order > 0:
			anyNew = true
			after = after[1:]
		default:
			anyNew = anyNew || !before[0].same(after[0])
			before, after = before[1:], after[1:]
		}
	}
	return append(deleted, before...), anyNew || len(after) > 0
}

// pushOrder has the types within one push, make before break; all others come last. Constraints, which decide the
// variants that a client subscribes to, are first.
var pushOrder = []string{dynparam.MapTypeURL, typeurl.Cluster, typeurl.Endpoints, typeurl.Listener, typeurl.RouteConfiguration}

// pushRank is the position of a type in pushOrder.
func pushRank(typeURL string) int {
	if i := slices.Index(pushOrder, typeURL); i >= 0 {
		return i
	}
	return len(pushOrder)
}
