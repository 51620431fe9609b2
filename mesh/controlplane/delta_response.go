package controlplane

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/typeurl"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// deltaBatch is what to send of one type to a delta client. No name is in it twice.
type deltaBatch struct {
	sub       *subscription
	resources []namedResource
	// removed are names that no longer exist; lost are single topics, for a client that
	// subscribes by locators.
	removed []string
	lost    []namedLoss
	errors  []namedError
	// absent are the names of removed that the client has asked for.
	absent map[string]bool
	// answer forces a response even if it is empty: a new wildcard subscription is always
	// answered. noMembers says that the wildcard has no members, and that the client knows of none: then an empty response goes
	// first, as removals alone could be for names that the client asks for.
	answer, noMembers bool
}

// namedResource, namedLoss and namedError have the name that the client uses, the latter two
// with the constraints of the subscription if there are any.
type (
	namedResource struct {
		name     string
		resource *Resource
		// heartbeat is set to send it without its bytes.
		heartbeat bool
	}
	namedLoss struct {
		topic topic
		of    *discoverypb.ResourceName
		// absent is set if the client has asked for it.
		absent bool
	}
	namedError struct {
		topic topic
		of    *discoverypb.ResourceName
		err   *resourceError
	}
)

func (n *deltaBatch) empty() bool {
	return len(n.resources) == 0 && len(n.removed) == 0 && len(n.lost) == 0 && len(n.errors) == 0 && !n.answer
}

// sort makes responses deterministic.
func (n *deltaBatch) sort() {
	slices.SortFunc(n.resources, func(a, b namedResource) int {
		return cmp.Or(strings.Compare(a.name, b.name), byName(a.resource, b.resource))
	})
	slices.Sort(n.removed)
	n.removed = slices.Compact(n.removed)
	slices.SortFunc(n.lost, func(a, b namedLoss) int {
		return cmp.Or(compareNames(a.of, b.of), strings.Compare(a.topic.which, b.topic.which))
	})
	sortErrors(n.errors)
}

func sortErrors(errs []namedError) {
	slices.SortFunc(errs, func(a, b namedError) int { return compareNames(a.of, b.of) })
}

func compareNames(a, b *discoverypb.ResourceName) int {
	return strings.Compare(a.GetName(), b.GetName())
}

// envelopeSize is the approximate size of an item of a response without its strings.
const envelopeSize = 32

// size is the approximate size of the resource in a response, without its name.
func (r *Resource) size() int {
	return envelopeSize + len(r.version) + len(r.parameters.Key()) + len(r.packed.TypeUrl) + len(r.packed.Value)
}

func (n namedResource) size() int {
	if n.heartbeat {
		return 2*envelopeSize + len(n.name) + len(n.resource.parameters.Key())
	}
	return n.resource.size() + len(n.name)
}

func (n namedResource) message(d dialect) *discoverypb.Resource {
	if n.heartbeat {
		return n.resource.heartbeat(n.name, d)
	}
	return n.resource.message(n.name, d)
}

// nextResponse moves items of about limit bytes, at least one, from n into a response. explain returns an error that says more about
// the absence of a resource, or nil. It is sent beside the removal, for clients that know errors.
func (n *deltaBatch) nextResponse(limit int, explain func(name string) *resourceError) *discoverypb.DeltaDiscoveryResponse {
	resp := &discoverypb.DeltaDiscoveryResponse{TypeUrl: n.sub.typeURL}
	n.answer = false
	if n.noMembers {
		n.noMembers = false
		return resp
	}
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
		if !fits(next.size()) && !together {
			return resp
		}
		resp.Resources = append(resp.Resources, next.message(n.sub.dialect))
		n.resources = n.resources[1:]
	}
	// An absence is explained once it has fitted, and so only once.
	fitsAbsence := func(size int, absent bool, of *discoverypb.ResourceName) bool {
		if !fits(size) {
			return false
		}
		if absent {
			if why := explain(of.GetName()); why != nil {
				message := why.message(of)
				room -= envelopeSize + proto.Size(message)
				resp.ResourceErrors = append(resp.ResourceErrors, message)
			}
		}
		return true
	}
	for ; len(n.removed) > 0; n.removed = n.removed[1:] {
		name := n.removed[0]
		if !fitsAbsence(envelopeSize+len(name), n.absent[name], &discoverypb.ResourceName{Name: name}) {
			return resp
		}
		resp.RemovedResources = append(resp.RemovedResources, name)
	}
	for ; len(n.lost) > 0; n.lost = n.lost[1:] {
		lost := n.lost[0]
		if !fitsAbsence(envelopeSize+proto.Size(lost.of), lost.absent, lost.of) {
			return resp
		}
		resp.RemovedResourceNames = append(resp.RemovedResourceNames, lost.of)
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
func makeBeforeBreak(all []deltaBatch) []deltaBatch {
	if len(all) < 2 {
		return all
	}
	var kept, ends []deltaBatch
	for _, n := range all {
		if n.sub.typeURL == typeurl.Cluster || n.sub.typeURL == typeurl.Endpoints {
			end := deltaBatch{sub: n.sub, removed: n.removed, absent: n.absent, lost: n.lost, errors: n.errors}
			n.removed, n.lost, n.errors = nil, nil, nil
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
