package controlplane

import (
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// delta is the incremental protocol on one stream.
type delta struct {
	*stream
	// maxSize is the approximate limit of a response in bytes.
	maxSize int
	// nonces is touched only by push, of which one runs at a time.
	nonces nonces
}

func newDelta(s *stream, maxSize int) *delta {
	return &delta{stream: s, maxSize: maxSize, nonces: newNonces()}
}

// handleRequest processes one request. Its changes of the subscription apply whatever its
// nonce (Envoy, "Incremental xDS").
func (p *delta) handleRequest(req *discoverypb.DeltaDiscoveryRequest) error {
	if err := p.greet(req.GetNode()); err != nil {
		return err
	}
	sub, err := p.subscription(req.GetTypeUrl(), tellDifference, dialectOf(req.GetResourceLocatorsSubscribe()))
	if err != nil {
		return err
	}
	p.mu.Lock()
	rejected := sub.delivery.answeredOne(req.GetResponseNonce(), req.GetErrorDetail())
	p.mu.Unlock()
	p.tellRejected(sub, rejected, req.GetErrorDetail())
	return p.resubscribe(sub, sub.deltaChange(
		requested(sub.dialect, req.GetResourceNamesSubscribe(), req.GetResourceLocatorsSubscribe()),
		requested(sub.dialect, req.GetResourceNamesUnsubscribe(), req.GetResourceLocatorsUnsubscribe()),
		req.GetInitialResourceVersions()))
}

// push sends what is due, all of it from one state of the store.
func (p *delta) push(send func(*discoverypb.DeltaDiscoveryResponse) error) error {
	var all []deltaBatch
	var version string
	p.collectComputed(func() { all, version = p.collect() })
	for _, n := range all {
		for !n.empty() {
			if err := send(p.response(&n, version)); err != nil {
				return err
			}
		}
	}
	return nil
}

// collect returns what is due, in push order, and the store's version. The caller holds
// Store.mu for reading.
func (p *delta) collect() ([]deltaBatch, string) {
	var all []deltaBatch
	for _, due := range p.takeDue() {
		t := p.store.tables[due.sub.typeURL]
		if t == nil {
			continue
		}
		if n := composeDelta(t, due); !n.empty() {
			all = append(all, n)
		}
	}
	return makeBeforeBreak(all), formatVersion(p.store.version)
}

// response makes the next message out of n, with a fresh nonce, and notes that
// it is sent.
func (p *delta) response(n *deltaBatch, version string) *discoverypb.DeltaDiscoveryResponse {
	resp := n.nextResponse(p.maxSize)
	resp.SystemVersionInfo = version
	resp.Nonce = p.nonces.next()
	p.mu.Lock()
	defer p.mu.Unlock()
	n.sub.delivery.sentOne(version, resp.Nonce)
	return resp
}
