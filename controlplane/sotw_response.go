package controlplane

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/typeurl"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// batch is the content of one response. No topic is in both lists.
type sotwBatch struct {
	sub       *subscription
	version   string
	resources []*Resource
	errors    []namedError
}

// response makes the message, with a fresh nonce, and notes that it is sent.
func (p *sotw) response(b sotwBatch) *discoverypb.DiscoveryResponse {
	if b.sub.typeURL == typeurl.Cluster {
		p.clusters = b.resources
	}
	nonce := p.nonces.next()

	p.mu.Lock()
	wrap := b.sub.wrapped() || p.mayWrap && slices.Contains(p.node.GetClientFeatures(), wrapFeature)
	b.sub.delivery.sent(b.version, nonce)
	p.mu.Unlock()

	resources := make([]*anypb.Any, len(b.resources))
	for i, r := range b.resources {
		resources[i] = r.packed
		if wrap {
			resources[i] = r.envelope(b.sub.dialect).packed()
		}
	}
	return &discoverypb.DiscoveryResponse{
		VersionInfo:    b.version,
		Resources:      resources,
		TypeUrl:        b.sub.typeURL,
		Nonce:          nonce,
		ResourceErrors: errorMessages(b.errors),
	}
}

func errorMessages(errs []namedError) []*discoverypb.ResourceError {
	var messages []*discoverypb.ResourceError
	for _, e := range errs {
		messages = append(messages, e.err.message(e.of))
	}
	return messages
}

// breakLast keeps Clusters that were deleted until everything else of the push
// was sent, as routes may refer to them until then. If there are new Clusters
// as well, Clusters are sent twice: with, and at the end without the deleted. An
// error counts as an end, of Clusters and of their assignments: a client may
// drop the resource for it.
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

// split returns what of a batch goes in its turn and what goes last, each one
// batch or none.
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
	// What is kept may match subscriptions that have errors.
	p.addRivals(p.store.tables[typeurl.Cluster], &first)
	b.errors, first.errors = first.errors, nil
	return []sotwBatch{first}, []sotwBatch{b}
}

// inOrder orders resources by name, and has each once.
func inOrder(found []*Resource) []*Resource {
	slices.SortFunc(found, byName)
	return slices.Compact(found)
}

// hasName reports whether a list ordered by name has a variant of a resource.
func hasName(resources []*Resource, name string) bool {
	_, ok := slices.BinarySearchFunc(resources, name, func(r *Resource, name string) int { return strings.Compare(r.name, name) })
	return ok
}

// compare walks two lists ordered by name. It returns what only before has, and
// whether after has anything that before has not.
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
			anyNew = anyNew || before[0] != after[0]
			before, after = before[1:], after[1:]
		}
	}
	return append(deleted, before...), anyNew || len(after) > 0
}

// pushRank orders the types within one push, make before break. What decides
// which variants a client subscribes to goes first.
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
