package controlplane

import (
	"fmt"
	"math/rand/v2"
	"slices"

	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

	// What follows is touched only by push, of which one runs at a time.

	// nonces are unique beyond the stream, so that one which a client carries
	// over from a stream before is not taken for one of this stream.
	noncePrefix string
	nonces      uint64
	// clusters are the Clusters of the last response.
	clusters []*Resource
}

func newSotW(s *stream, mayWrap bool) *sotw {
	return &sotw{stream: s, mayWrap: mayWrap, noncePrefix: fmt.Sprintf("%08x", rand.Uint32())}
}

// handle takes in one request.
func (p *sotw) handle(req *discoverypb.DiscoveryRequest) error {
	if err := p.greet(req.GetNode()); err != nil {
		return err
	}
	typeURL := req.GetTypeUrl()
	if typeURL == "" {
		return status.Error(codes.InvalidArgument, "type_url: empty; on an aggregated stream every request has to name its type")
	}
	sub, err := p.subscription(typeURL, hasWildcard(typeURL))
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

// batch is the content of one response.
type batch struct {
	sub       *subscription
	version   string
	resources []*Resource
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
		if due.sub.complete {
			b.resources = subscribed(t, due.sub)
		} else if b.resources = changed(t, due); len(b.resources) == 0 {
			// Only names that do not exist: SotW has no way to say so.
			continue
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
	for name := range sub.names {
		if r := t.resources[name]; r != nil {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, byName)
	return found
}

// changed returns what is due of the subscription and exists.
func changed(t *table, due dueChanges) []*Resource {
	var found []*Resource
	for name := range due.pending.names {
		if r := t.resources[name]; r != nil && due.sub.wants(name) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, byName)
	return found
}

// breakLast keeps Clusters that were deleted until everything else of the push
// was sent, as routes may refer to them until then. If there are new Clusters
// as well, Clusters are sent twice: with, and at the end without the deleted.
func (p *sotw) breakLast(batches []batch) []batch {
	if len(batches) < 2 || batches[0].sub.typeURL != clusterType {
		return batches
	}
	first := batches[0]
	deleted, anyNew := compare(p.clusters, first.resources)
	deleted = slices.DeleteFunc(deleted, func(r *Resource) bool { return !first.sub.wants(r.name) })
	if len(deleted) == 0 {
		return batches
	}
	batches = append(batches[1:], first)
	if !anyNew {
		return batches
	}
	first.resources = slices.Concat(first.resources, deleted)
	return slices.Insert(batches, 0, first)
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
	p.nonces++
	nonce := fmt.Sprintf("%s-%d", p.noncePrefix, p.nonces)

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
		VersionInfo: b.version,
		Resources:   resources,
		TypeUrl:     b.sub.typeURL,
		Nonce:       nonce,
	}
}
