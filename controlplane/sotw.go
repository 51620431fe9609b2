package controlplane

import (
	"iter"
	"maps"
	"slices"
	"strings"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// wrapFeature is the client feature that announces that the client takes
// resources of a SotW response wrapped in envoy.service.discovery.v3.Resource.
const wrapFeature = "xds.config.resource-in-sotw"

// sotw is the state-of-the-world variant of the protocol on one stream.
type sotw struct {
	*stream
	// mayWrap is the server's part in whether resources are wrapped.
	mayWrap bool
	// tellAbsence makes an error of names that do not exist.
	tellAbsence bool

	// What follows is touched only by push, of which one runs at a time.

	nonces nonces
	// clusters are the Clusters of the last response.
	clusters []*Resource
}

func newSotW(s *stream, mayWrap, tellAbsence bool) *sotw {
	return &sotw{stream: s, mayWrap: mayWrap, tellAbsence: tellAbsence, nonces: newNonces()}
}

// handle takes in one request.
func (p *sotw) handle(req *discoverypb.DiscoveryRequest) error {
	if err := p.greet(req.GetNode()); err != nil {
		return err
	}
	how := tellChanged
	if hasWildcard(req.GetTypeUrl()) {
		how = tellAll
	}
	sub, err := p.subscription(req.GetTypeUrl(), how)
	if err != nil {
		return err
	}
	if p.stale(sub, req) {
		return nil
	}
	return p.resubscribe(sub, sub.diff(req.GetResourceNames()))
}

// stale notes the request's ACK or NACK. A request that answers an older
// response is to be ignored altogether: the client sends another one, with the
// names it then wants, for the response that is on its way.
func (p *sotw) stale(sub *subscription, req *discoverypb.DiscoveryRequest) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if sub.delivery.stale(req.GetResponseNonce()) {
		return true
	}
	sub.delivery.answered(req.GetVersionInfo(), req.GetResponseNonce(), req.GetErrorDetail())
	return false
}

// batch is the content of one response. No name is in both lists.
type batch struct {
	sub       *subscription
	version   string
	resources []*Resource
	errors    []namedError
}

// push sends what is due, all of it from one state of the store.
func (p *sotw) push(send func(*discoverypb.DiscoveryResponse) error) error {
	for _, b := range p.collect() {
		if err := send(p.response(b)); err != nil {
			return err
		}
	}
	return nil
}

func (p *sotw) collect() []batch {
	p.store.mu.RLock()
	defer p.store.mu.RUnlock()
	var batches []batch
	for _, due := range p.takeDue() {
		t := p.store.tables[due.sub.typeURL]
		if t == nil {
			continue
		}
		b := batch{sub: due.sub, version: formatVersion(t.version)}
		if due.sub.telling == tellAll {
			b.resources = subscribed(t, due.sub)
			b.errors = p.newErrors(t, due.sub, maps.Keys(due.sub.names))
		} else {
			b.resources = changed(t, due)
			b.errors = p.newErrors(t, due.sub, maps.Keys(due.pending.names))
			if len(b.resources) == 0 && len(b.errors) == 0 {
				// Only names that do not exist, of which SotW has no way to say
				// so but by an error.
				continue
			}
		}
		batches = append(batches, b)
	}
	return p.breakLast(batches)
}

// subscribed returns all that the subscription asks for and that exists.
func subscribed(t *table, sub *subscription) []*Resource {
	if sub.interest.wildcard() {
		return t.all()
	}
	found := make([]*Resource, 0, len(sub.names))
	for key := range sub.names {
		if r := t.resource(key); r != nil {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, byName)
	return found
}

// changed returns what is due of the subscription and exists.
func changed(t *table, due dueChanges) []*Resource {
	var found []*Resource
	for key := range due.pending.names {
		if r := t.resource(key); r != nil && due.sub.wants(key) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, byName)
	return found
}

// newErrors returns the errors under the names that the client was not told
// yet, ordered by name, and from then on takes them for told. It is told an
// error once, until the error changes or the resource comes in between (TP3,
// "Protocol Behavior"). There are none for names that only the wildcard covers
// (TP3, "Wildcard Subscriptions and Glob Collections").
func (p *sotw) newErrors(t *table, sub *subscription, keys iter.Seq[nameKey]) []namedError {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []namedError
	for key := range keys {
		name, named := sub.names[key]
		now := t.entries[key]
		was := sub.told[key]
		switch {
		case !named:
		case now == nil:
			if p.tellAbsence && was != absence {
				found = append(found, namedError{name, notFound(sub.typeURL, name)})
				sub.remember(key, absence)
			}
		case now.err == nil:
			delete(sub.told, key)
		case was == nil || !was.sameVersion(now):
			found = append(found, namedError{name, now.err})
			sub.remember(key, now)
		}
	}
	slices.SortFunc(found, func(a, b namedError) int { return strings.Compare(a.name, b.name) })
	return found
}

// breakLast keeps Clusters that were deleted until everything else of the push
// was sent, as routes may refer to them until then. If there are new Clusters
// as well, Clusters are sent twice: with, and at the end without the deleted. An
// error counts as an end, of Clusters and of their assignments: a client may
// drop the resource for it.
func (p *sotw) breakLast(batches []batch) []batch {
	if len(batches) < 2 {
		return batches
	}
	var kept, ends []batch
	for _, b := range batches {
		begin, end := p.split(b)
		kept = append(kept, begin...)
		ends = append(ends, end...)
	}
	return append(kept, ends...)
}

// split returns what of a batch goes in its turn and what goes last, each one
// batch or none.
func (p *sotw) split(b batch) (begin, end []batch) {
	switch {
	case b.sub.typeURL == clusterType:
		return p.splitClusters(b)
	case b.sub.typeURL != endpointType || len(b.errors) == 0:
		return []batch{b}, nil
	case len(b.resources) == 0:
		return nil, []batch{b}
	}
	first, last := b, b
	first.errors, last.resources = nil, nil
	return []batch{first}, []batch{last}
}

func (p *sotw) splitClusters(b batch) (begin, end []batch) {
	deleted, anyNew := compare(p.clusters, b.resources)
	deleted = slices.DeleteFunc(deleted, func(r *Resource) bool { return !b.sub.wants(keyOf(r.name)) })
	if len(deleted) == 0 {
		return []batch{b}, nil
	}
	if !anyNew {
		return nil, []batch{b}
	}
	first := b
	first.resources, first.errors = slices.Concat(b.resources, deleted), nil
	return []batch{first}, []batch{b}
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

// response makes the message, with a fresh nonce, and notes that it is sent.
func (p *sotw) response(b batch) *discoverypb.DiscoveryResponse {
	if b.sub.typeURL == clusterType {
		p.clusters = b.resources
	}
	nonce := p.nonces.next()

	p.mu.Lock()
	wrap := p.mayWrap && slices.Contains(p.node.GetClientFeatures(), wrapFeature)
	b.sub.delivery.sent(b.version, nonce)
	p.mu.Unlock()

	resources := make([]*anypb.Any, len(b.resources))
	for i, r := range b.resources {
		resources[i] = r.packed
		if wrap {
			resources[i] = r.wrapped()
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
		messages = append(messages, e.err.message(e.name))
	}
	return messages
}
