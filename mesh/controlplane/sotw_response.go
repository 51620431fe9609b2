package controlplane

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/typeurl"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// sotwBatch is the content of one response. No topic is in both lists.
type sotwBatch struct {
	sub       *subscription
	version   string
	nonce     string
	resources []*Resource
	errors    []namedError
	// heartbeats are sent without their bytes, on a stream that wraps resources.
	heartbeats []*Resource
}

// response returns the message.
func (p *sotw) response(b *sotwBatch) *discoverypb.DiscoveryResponse {
	if b.sub.typeURL == typeurl.Cluster {
		p.clusters = b.resources
	}
	wrap := p.wraps(b.sub)
	resources := make([]*anypb.Any, len(b.resources))
	for i, r := range b.resources {
		resources[i] = r.packed
		if wrap {
			resources[i] = r.envelope(b.sub.dialect).packed()
		}
	}
	for _, r := range b.heartbeats {
		resources = append(resources, packedEnvelope(r.heartbeat(r.name, b.sub.dialect), r.packed))
	}
	return &discoverypb.DiscoveryResponse{
		VersionInfo:    b.version,
		Resources:      resources,
		TypeUrl:        b.sub.typeURL,
		Nonce:          b.nonce,
		ResourceErrors: p.errorMessages(b),
	}
}

// wraps reports whether the resources of a subscription are wrapped: if the client has asked for it, and
// always for their parameters (TP2, "API Changes"), or for the name and cache control of a DPDS resource.
func (p *sotw) wraps(sub *subscription) bool {
	return sub.dialect == byLocators || sub.typeURL == dynparam.MapTypeURL ||
		p.mayWrap && slices.Contains(p.node.GetClientFeatures(), wrapFeature)
}

func (p *sotw) errorMessages(b *sotwBatch) []*discoverypb.ResourceError {
	var messages []*discoverypb.ResourceError
	for _, e := range b.errors {
		message := e.err.message(e.of)
		if e.err.absent {
			if text := p.absenceText(b.sub.typeURL, e.err.name); text != nil {
				message = text.message(e.of)
			}
		}
		messages = append(messages, message)
	}
	return messages
}

// breakLast moves the deletion of Clusters to the end of the push, as routes may refer to them
// until then. If there are new Clusters as well, Clusters are sent twice: with the deleted ones,
// and at the end without. An error of a Cluster or of its assignment counts as a deletion: a client
// may drop the resource for it.
func (p *sotw) breakLast(batches []sotwBatch) []sotwBatch {
	if len(batches) < 2 {
		return batches
	}
	var kept, ends []sotwBatch
	for _, b := range batches {
		begin, end := p.split(b)
		kept = append(kept, begin...)
		ends = append(ends, end...)
	}
	return append(kept, ends...)
}

// split divides a batch into what is sent in its turn and what is sent last, each one batch or
// none.
func (p *sotw) split(b sotwBatch) (begin, end []sotwBatch) {
	switch {
	case b.sub.typeURL == typeurl.Cluster:
		return p.splitClusters(b)
	case b.sub.typeURL != typeurl.Endpoints || len(b.errors) == 0:
		return []sotwBatch{b}, nil
	case len(b.resources) == 0:
		return nil, []sotwBatch{b}
	}
	first, last := b, b
	first.errors, last.resources = nil, nil
	return []sotwBatch{first}, []sotwBatch{last}
}

func (p *sotw) splitClusters(b sotwBatch) (begin, end []sotwBatch) {
	deleted, anyNew := compare(p.clusters, b.resources)
	deleted = slices.DeleteFunc(deleted, func(r *Resource) bool { return !b.sub.wantsName(r) || hasName(b.resources, r.name) })
	if len(deleted) == 0 {
		return []sotwBatch{b}, nil
	}
	if !anyNew {
		return nil, []sotwBatch{b}
	}
	first := b
	first.resources = inOrder(slices.Concat(b.resources, deleted))
	// The deleted Clusters may match subscriptions that have errors.
	p.addRivals(p.store.tables[typeurl.Cluster], &first)
	b.errors, first.errors = first.errors, nil
	return []sotwBatch{first}, []sotwBatch{b}
}

// inOrder sorts resources by name and removes duplicates.
func inOrder(found []*Resource) []*Resource {
	slices.SortFunc(found, byName)
	return slices.CompactFunc(found, (*Resource).same)
}

// hasName reports whether a list ordered by name has a variant of a resource.
func hasName(resources []*Resource, name string) bool {
	_, ok := slices.BinarySearchFunc(resources, name, func(r *Resource, name string) int { return strings.Compare(r.name, name) })
	return ok
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

// pushRank orders the types within one push, make before break. Constraints, which decide the
// variants that a client subscribes to, are first.
func pushRank(typeURL string) int {
	switch typeURL {
	case dynparam.MapTypeURL:
		return -1
	case typeurl.Cluster:
		return 0
	case typeurl.Endpoints:
		return 1
	case typeurl.Listener:
		return 2
	case typeurl.RouteConfiguration:
		return 3
	default:
		return 4
	}
}
