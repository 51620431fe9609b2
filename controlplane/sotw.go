package controlplane

import (
	"iter"
	"maps"
	"slices"

	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// wrapFeature is the client feature that announces that the client takes
// resources of a SotW response wrapped in envoy.service.discovery.v3.Resource.
const wrapFeature = "xds.config.resource-in-sotw"

// sotw is the state-of-the-world protocol on one stream.
type sotw struct {
	*stream
	// mayWrap is Options.WrapResources.
	mayWrap bool
	// tellAbsence reports names that do not exist by an error (Options.NotFoundErrors).
	tellAbsence bool

	// What follows is touched only by push, of which one runs at a time.

	nonces nonces
	// clusters are the Clusters of the last response.
	clusters []*Resource
}

func newSotW(s *stream, mayWrap, tellAbsence bool) *sotw {
	s.withdrawals.completeOnly = !tellAbsence
	return &sotw{stream: s, mayWrap: mayWrap, tellAbsence: tellAbsence, nonces: newNonces()}
}

// handleRequest processes one request.
func (p *sotw) handleRequest(req *discoverypb.DiscoveryRequest) error {
	if err := p.greet(req.GetNode()); err != nil {
		return err
	}
	how := tellChanged
	if hasWildcard(req.GetTypeUrl()) {
		how = tellAll
	}
	sub, err := p.subscription(req.GetTypeUrl(), how, dialectOf(req.GetResourceLocators()))
	if err != nil {
		return err
	}
	if p.stale(sub, req) || sub.lists(req) {
		return nil
	}
	if err := p.resubscribe(sub, sub.sotwChange(requested(sub.dialect, req.GetResourceNames(), req.GetResourceLocators()))); err != nil {
		return err
	}
	sub.listed = req.GetResourceNames()
	return nil
}

// stale notes the request's ACK or NACK. A request that answers an older
// response is to be ignored altogether: the client sends another one, with the
// names it then wants, for the response that is on its way.
func (p *sotw) stale(sub *subscription, req *discoverypb.DiscoveryRequest) bool {
	p.mu.Lock()
	if sub.delivery.stale(req.GetResponseNonce()) {
		p.mu.Unlock()
		return true
	}
	rejected := sub.delivery.answered(req.GetVersionInfo(), req.GetResponseNonce(), req.GetErrorDetail())
	p.mu.Unlock()
	p.tellRejected(sub, rejected, req.GetErrorDetail())
	return false
}

// push sends what is due, all of it from one state of the store.
func (p *sotw) push(send func(*discoverypb.DiscoveryResponse) error) error {
	var batches []sotwBatch
	p.collectComputed(func() { batches = p.collect() })
	for _, b := range batches {
		if err := send(p.response(b)); err != nil {
			return err
		}
	}
	return nil
}

// collect returns what is due, in push order. The caller holds Store.mu for reading.
func (p *sotw) collect() []sotwBatch {
	var batches []sotwBatch
	for _, due := range p.takeDue() {
		t := p.store.tables[due.sub.typeURL]
		if t == nil {
			continue
		}
		b := sotwBatch{sub: due.sub, version: formatVersion(t.version)}
		if due.sub.telling == tellAll {
			b.resources = p.withKept(due.sub, subscribed(t, due.sub))
			b.errors = p.newErrors(t, due.sub, maps.Keys(due.pending.topics))
			p.addRivals(t, &b)
		} else if p.changed(t, due, &b); len(b.resources) == 0 && len(b.errors) == 0 {
			// Only names that do not exist, of which SotW has no way to say
			// so but by an error.
			continue
		}
		batches = append(batches, b)
	}
	return p.breakLast(batches)
}

// subscribed returns all that the subscription asks for and that exists. It is for
// types with a wildcard.
func subscribed(t *table, sub *subscription) []*Resource {
	if sub.dialect == byNames && sub.interest.wildcard() {
		return t.listing(byNames, sub.implicit)
	}
	found := make([]*Resource, 0, len(sub.names))
	for _, a := range sub.asksInOrder(t) {
		if a.choice.asResource() != nil {
			found = append(found, a.choice.resource)
		}
	}
	for tp := range sub.topics[wildcardKey] {
		if l := sub.names[tp]; l.refused == nil {
			found = append(found, t.listing(byLocators, l.constraints)...)
		}
	}
	return inOrder(found)
}

// withKept adds the resources that were deleted and that the client is still to have.
// found is ordered by name, and stays as it is.
func (p *sotw) withKept(sub *subscription, found []*Resource) []*Resource {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(sub.kept) == 0 {
		return found
	}
	sub.kept.dropUnsent(p.clusters)
	return inOrder(slices.Concat(found, sub.kept.resources()))
}

// changed puts into b what is due of the subscription and exists.
func (p *sotw) changed(t *table, due dueChanges, b *sotwBatch) {
	topics := maps.Keys(due.pending.topics)
	p.mu.Lock()
	for tp, again := range due.pending.topics {
		if !due.sub.named(tp) {
			continue
		}
		switch now := due.sub.current(t, tp); {
		case now == unanswered:
			due.sub.postpone(tp, again)
		case now.asResource() != nil && !due.sub.toldAnswer(tp, now):
			b.resources = append(b.resources, now.resource)
		}
	}
	p.mu.Unlock()
	b.resources = inOrder(b.resources)
	b.errors = p.newErrors(t, due.sub, topics)
	p.addRivals(t, b)
}

// toldAnswer reports whether the client was sent a DPDS resource already, and notes it as
// told. A computed resource may come out the same again, and then is not sent.
func (sub *subscription) toldAnswer(tp topic, now *entry) bool {
	if sub.typeURL != dynparam.MapTypeURL {
		return false
	}
	old := sub.told[tp]
	sub.told.set(tp, now)
	return old != nil && old.sameVersion(now)
}

// addRivals adds what the client needs in order to tell for which of its subscriptions the
// resources are.
func (p *sotw) addRivals(t *table, b *sotwBatch) {
	if b.sub.dialect == byNames {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	sent, failed := map[*Resource]bool{}, map[topic]bool{}
	for _, r := range b.resources {
		sent[r] = true
	}
	for _, e := range b.errors {
		failed[e.topic] = true
	}
	for i := 0; i < len(b.resources); i++ {
		b.sub.rivals(t, b.resources[i], func(tp topic, e *entry) {
			switch {
			case e.resource != nil && !sent[e.resource]:
				sent[e.resource] = true
				b.resources = append(b.resources, e.resource)
			case e.err != nil && !failed[tp]:
				failed[tp] = true
				b.errors = append(b.errors, namedError{tp, b.sub.resourceName(tp, e), e.err})
			}
		})
	}
	slices.SortFunc(b.resources, byName)
	sortErrors(b.errors)
}

// newErrors returns the errors of the topics that the client was not told yet, ordered by
// name, and notes them as told. It is told an error
// once, until the error changes or the resource is sent in between (TP3, "Protocol
// Behavior"). There are none for names that only the wildcard covers (TP3,
// "Wildcard Subscriptions and Glob Collections").
func (p *sotw) newErrors(t *table, sub *subscription, topics iter.Seq[topic]) []namedError {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []namedError
	for tp := range topics {
		l, named := sub.names[tp]
		if !named || sub.isWildcard(tp) && l.refused == nil {
			continue
		}
		now := sub.current(t, tp)
		old := sub.told[tp]
		switch {
		case now == nil:
			if p.tellAbsence && old != absence {
				found = append(found, namedError{tp, l.resourceName(sub.dialect), notFound(sub.typeURL, l.name)})
				sub.told.set(tp, absence)
			}
		case now == unanswered:
		case now.err == nil:
			if sub.typeURL != dynparam.MapTypeURL {
				delete(sub.told, tp)
			}
		case old == nil || !old.sameVersion(now):
			found = append(found, namedError{tp, l.resourceName(sub.dialect), now.err})
			sub.told.set(tp, now)
		}
	}
	sortErrors(found)
	return found
}
