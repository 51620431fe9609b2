package controlplane

import (
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// delta is the incremental protocol on one stream.
type delta struct{ *stream }

// handleRequest processes one request. Its changes of the subscription apply whatever its
// nonce (Envoy, "Incremental xDS").
func (p *delta) handleRequest(req *discoverypb.DeltaDiscoveryRequest) error {
	defer p.leave()
	if err := p.greet(req.GetNode()); err != nil {
		return err
	}
	sub, err := p.subscription(req.GetTypeUrl(), req.GetResourceLocatorsSubscribe())
	if err != nil {
		return err
	}
	p.mu.Lock()
	got, changed := sub.delivery.answered(req.GetResponseNonce(), req.GetErrorDetail(), true)
	p.mu.Unlock()
	p.report(sub, got, changed, req.GetErrorDetail())
	silent := len(req.GetResourceNamesSubscribe())+len(req.GetResourceLocatorsSubscribe())+
		len(req.GetResourceNamesUnsubscribe())+len(req.GetResourceLocatorsUnsubscribe()) == 0
	if silent && sub.interest != interestUnknown {
		return nil // as most ACKs are
	}
	p.enter()
	asked := requested(sub.addressing, req.GetResourceNamesSubscribe(), req.GetResourceLocatorsSubscribe())
	dropped := requested(sub.addressing, req.GetResourceNamesUnsubscribe(), req.GetResourceLocatorsUnsubscribe())
	if hasWildcard(sub.typeURL) && sub.interest == interestUnknown && len(asked) == 0 && !isIn(dropped, wildcardTopic) {
		if len(dropped) > 0 {
			return nil // it has subscribed to nothing yet, and the next request counts as the first
		}
		asked[wildcardTopic] = locator{name: wildcardName}
	}
	return p.resubscribe(sub, asked, func() subscriptionChange {
		return sub.deltaChange(asked, dropped, req.GetInitialResourceVersions())
	})
}

// number implements protocolHandler.
func (p *delta) number(n *batch) { n.version = formatVersion(p.store.version) }

// response implements protocolHandler: it moves a part of n, with a new nonce, and records it as sent.
func (p *delta) response(n *batch) *discoverypb.DeltaDiscoveryResponse {
	resp := n.nextResponse()
	resp.SystemVersionInfo = n.version
	resp.Nonce = p.nonces.next()
	p.mu.Lock()
	defer p.mu.Unlock()
	n.sub.delivery.sent(n.version, resp.Nonce, false)
	return resp
}
