package controlplane

import (
	"iter"
	"maps"
	"slices"
	"sync"

	implementation "github.com/dynxds/dynxds/internal/dialect"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// wrapFeature is the feature of clients that accept the resources of a SotW response wrapped in
// envoy.service.discovery.v3.Resource.
const wrapFeature = "xds.config.resource-in-sotw"

// sotw is the state-of-the-world protocol on one stream.
type sotw struct {
	*stream
	// mayWrap is Options.WrapResources.
	mayWrap bool
	// reportAbsence is Options.NotFoundErrors.
	reportAbsence bool
	// numbering is held while responses are made and get their nonces, and while a request is compared with the
	// last nonce. So no response is sent between a request that answers the last one and what it changes:
	//
	//	client answers response 1, with b in place of a   server finds that it answers the last response
	//	                                                  sends response 2, with a, for a change of the store
	//	client takes the request for ignored              subscribes the client to b, and sends response 3, without a
	//
	// It is locked after Store.mu and before stream.mu.
	numbering sync.Mutex

	// The rest is used only by push, which runs once at a time.

	nonces nonces
	// clusters are the Clusters of the last response.
	clusters []*Resource
}

func newSotW(s *stream, mayWrap, reportAbsence bool) *sotw {
	s.withdrawals.completeOnly = !reportAbsence
	return &sotw{stream: s, mayWrap: mayWrap, reportAbsence: reportAbsence, nonces: newNonces()}
}

// handleRequest processes one request.
func (p *sotw) handleRequest(req *discoverypb.DiscoveryRequest) error {
	defer p.leave()
	if err := p.greet(req.GetNode()); err != nil {
		return err
	}
	how := pushChanged
	if hasWildcard(req.GetTypeUrl()) {
		how = pushAll
	}
	sub, err := p.subscription(req.GetTypeUrl(), how, req.GetResourceLocators())
	if err != nil {
		return err
	}
	if sub.interest == interestUnknown && req.GetVersionInfo() != "" {
		p.resumes(sub)
	}
	names := hashOf(req.GetResourceNames())
	// Most ACKs have the names of the previous request.
	again := sub.dialect == byNames && sub.interest != interestUnknown && sub.listed == names
	if !p.take(sub, req, again) || again {
		return nil
	}
	defer p.settle(sub, -1)
	p.enter()
	wanted := requested(sub.dialect, req.GetResourceNames(), req.GetResourceLocators())
	err = p.resubscribe(sub, wanted, len(wanted) == 0, func() subscriptionChange { return comparison{sub}.sotwChange(wanted) })
	if err != nil {
		return err
	}
	sub.listed = names
	return nil
}

// resumes notes that the client has a version of an earlier stream.
func (p *sotw) resumes(sub *subscription) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sub.resumes = implementation.Of(p.node.GetUserAgentName(), p.node.GetClientFeatures()) != implementation.Dynxds &&
		!slices.Contains(p.node.GetClientFeatures(), implementation.RelayFeature)
}

// take records the request's ACK or NACK. It returns false if the request answers an older
// response, and is to be ignored: the client will send another one, with its names at that time,
// for the response that is on its way. Otherwise no response is made until it is carried out, unless it lists
// the same names again.
func (p *sotw) take(sub *subscription, req *discoverypb.DiscoveryRequest, again bool) bool {
	got, stale := p.compare(sub, req, again)
	if stale {
		return false
	}
	p.report(sub, got, req.GetErrorDetail())
	return true
}

func (p *sotw) compare(sub *subscription, req *discoverypb.DiscoveryRequest, again bool) (got verdict, stale bool) {
	p.numbering.Lock()
	defer p.numbering.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if sub.delivery.stale(req.GetResponseNonce()) {
		return verdict{}, true
	}
	if !again {
		sub.settling++
	}
	return sub.delivery.answered(req.GetVersionInfo(), req.GetResponseNonce(), req.GetErrorDetail()), false
}

// push sends everything that is due, from one state of the store.
func (p *sotw) push(send func(*discoverypb.DiscoveryResponse) error) error {
	var batches []sotwBatch
	p.sortNames()
	p.collectComputed(func() { batches = p.number() })
	for i := range batches {
		p.tab.enter()
		resp := p.response(&batches[i])
		p.tab.leave()
		if err := send(resp); err != nil {
			return err
		}
	}
	return nil
}

// number returns what is due, with nonces, and records it as sent. The caller holds Store.mu for reading.
func (p *sotw) number() []sotwBatch {
	p.numbering.Lock()
	defer p.numbering.Unlock()
	batches := p.collect()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range batches {
		b := &batches[i]
		b.nonce = p.nonces.next()
		b.sub.delivery.sent(b.version, b.nonce)
	}
	return batches
}

// collect returns what is due, in push order. The caller holds Store.mu for reading.
func (p *sotw) collect() []sotwBatch {
	var batches []sotwBatch
	for _, due := range p.takeDue() {
		t := due.table
		if p.withhold(due) {
			continue
		}
		b := sotwBatch{sub: due.sub, version: formatVersion(t.version)}
		if due.sub.mode == pushAll {
			if due.onlyRenewed() && !p.wraps(due.sub) {
				continue // the client does not know of the TTL
			}
			b.errors = p.newErrors(t, due.sub, maps.Keys(due.pending.topics))
			if !due.pending.all && len(due.pending.renewed) == 0 && len(b.errors) == 0 {
				continue // the rest of many names, which the last response had
			}
			b.resources = p.withKept(due.sub, subscribed(t, due.sub))
			p.addRivals(t, &b)
		} else if p.changed(t, due, &b); len(b.resources) == 0 && len(b.errors) == 0 && len(b.heartbeats) == 0 {
			continue // names that do not exist, which SotW cannot report but by errors
		}
		batches = append(batches, b)
	}
	return p.breakLast(batches)
}

// subscribed returns all existing resources of a subscription to a type with a wildcard.
func subscribed(t *table, sub *subscription) []*Resource {
	if sub.dialect == byNames && sub.interest.wildcard() {
		return withNamed(t.listing(byNames, sub.implicit), sub, t)
	}
	found := make([]*Resource, 0, sub.names.len())
	for _, a := range sub.asksInOrder() {
		if r := a.entryOf(sub).asResource(); r != nil {
			found = append(found, r)
		}
	}
	if sub.dialect == byLocators {
		for a := range sub.asksFor(wildcardKey) {
			if a.refused == nil && !sub.closed.has(sub.topicOf(a)) {
				found = append(found, t.listing(byLocators, a.constraints)...)
			}
		}
	}
	return inOrder(found)
}

// withNamed adds to the resources of a wildcard those that it does not cover and that the client
// subscribes to by name. found is not changed.
func withNamed(found []*Resource, sub *subscription, t *table) []*Resource {
	if t.source == nil || sub.names.len() == 0 {
		return found
	}
	found = slices.Clone(found)
	for _, a := range sub.asksInOrder() {
		if r := a.entryOf(sub).asResource(); r != nil && !t.inWildcard(a.name) {
			found = append(found, r)
		}
	}
	return inOrder(found)
}

// withhold puts back what is due of a subscription that has to wait for its source, which makes it
// due when it answers.
func (p *sotw) withhold(due dueChanges) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !withholds(due.sub, due.table) {
		return false
	}
	due.sub.pending.merge(due.pending)
	return true
}

// withholds reports whether a complete SotW response has to wait for a source: for the wildcard, or
// in the type's first response for any name, since clients take what it lacks for deleted. That the
// source is a relay whose management servers are unreachable is no answer for a client that may have
// the resource and does not know the error. The caller holds Store.mu and stream.mu.
func withholds(sub *subscription, t *table) bool {
	if t.source == nil || sub.mode != pushAll {
		return false
	}
	if sub.closed.len() > 0 {
		return true
	}
	if sub.delivery.reply != ReplyNone {
		return false
	}
	for a := range sub.asks() {
		if e := a.entryOf(sub); e == awaited || sub.resumes && e != nil && e.err != nil && e.err.unreachable {
			return true
		}
	}
	return false
}

// withKept adds the deleted resources that are kept for the client. found is ordered by name,
// and is not changed.
func (p *sotw) withKept(sub *subscription, found []*Resource) []*Resource {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(sub.kept) == 0 {
		return found
	}
	sub.kept.dropUnsent(p.clusters)
	return inOrder(slices.Concat(found, sub.kept.resources()))
}

// changed adds to b the existing resources that are due, and the errors.
func (p *sotw) changed(t *table, due dueChanges, b *sotwBatch) {
	topics := maps.Keys(due.pending.topics)
	var besides []namedError
	p.mu.Lock()
	for tp, again := range due.pending.topics {
		if !due.sub.named(tp) {
			continue
		}
		switch now := due.sub.current(t, tp); {
		case now == unanswered:
			due.sub.postpone(tp, again)
		case now == awaited:
			due.sub.sent.awaits(tp, again)
		case now.asResource() != nil && !again && due.sub.hasBeside(tp, now):
			besides = due.sub.beside(tp, now, besides)
		case now.asResource() != nil && !due.sub.answerSent(tp, now):
			b.resources = append(b.resources, now.resource)
			due.sub.sending(tp, now)
		}
	}
	p.mu.Unlock()
	b.resources = inOrder(b.resources)
	b.heartbeats = p.heartbeats(t, due)
	b.errors = append(p.newErrors(t, due.sub, topics), besides...)
	sortErrors(b.errors)
	p.addRivals(t, b)
}

// answerSent records a DPDS resource as sent, and reports whether the client has it already: a
// computed resource may be the same as before.
func (sub *subscription) answerSent(tp topic, now *entry) bool {
	if sub.typeURL != dynparam.MapTypeURL {
		return false
	}
	old := sub.sent.entries[tp]
	sub.sent.set(tp, now)
	return old != nil && old.sameVersion(now)
}

// addRivals adds what the client needs to assign the resources to its subscriptions; see
// subscription.rivals.
func (p *sotw) addRivals(t *table, b *sotwBatch) {
	if b.sub.dialect == byNames {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	sent, failed := map[resourceID]bool{}, map[topic]bool{}
	for _, r := range b.resources {
		sent[r.id()] = true
	}
	for _, e := range b.errors {
		failed[e.topic] = true
	}
	for i := 0; i < len(b.resources); i++ {
		b.sub.rivals(t, b.resources[i], func(tp topic, e *entry) {
			switch {
			case e.resource != nil && !sent[e.resource.id()]:
				sent[e.resource.id()] = true
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

// newErrors returns the errors of the topics that the client was not sent yet, ordered by name,
// and records them as sent. An error is sent once, until it changes or the resource is sent in
// between (TP3, "Protocol Behavior"). There are none for names that only the wildcard covers
// (TP3, "Wildcard Subscriptions and Glob Collections").
func (p *sotw) newErrors(t *table, sub *subscription, topics iter.Seq[topic]) []namedError {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []namedError
	for tp := range topics {
		a := sub.askOf(tp)
		if a == nil || sub.isWildcard(tp) && a.refused == nil {
			continue
		}
		l := sub.locator(a)
		now := sub.current(t, tp)
		old := sub.sent.entries[tp]
		switch {
		case now == nil:
			if p.reportAbsence && old != absence {
				found = append(found, namedError{tp, l.resourceName(sub.dialect), notFound(sub.typeURL, l.name)})
				sub.sent.set(tp, absence)
			}
		case now == unanswered, now == awaited:
		case now.err == nil:
			if sub.typeURL != dynparam.MapTypeURL {
				sub.sent.forget(tp)
			}
		case old == nil || !old.sameVersion(now):
			found = append(found, namedError{tp, l.resourceName(sub.dialect), now.err})
			sub.sent.set(tp, now)
		}
	}
	sortErrors(found)
	return found
}
