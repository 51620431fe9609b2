package controlplane

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	clientkind "github.com/dynxds/dynxds/internal/dialect"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// wrapFeature is the feature of clients that accept the resources of a SotW response wrapped in
// envoy.service.discovery.v3.Resource.
const wrapFeature = "xds.config.resource-in-sotw"

// sotw is the state-of-the-world protocol on one stream.
type sotw struct{ *stream }

// handleRequest processes one request.
func (p *sotw) handleRequest(req *discoverypb.DiscoveryRequest) error {
	defer p.leave()
	if err := p.greet(req.GetNode()); err != nil {
		return err
	}
	sub, err := p.subscription(req.GetTypeUrl(), req.GetResourceLocators())
	if err != nil {
		return err
	}
	names := hashOf(req.GetResourceNames())
	// Most ACKs have the names of the previous request.
	again := sub.addressing == byNames && sub.interest != interestUnknown && sub.listed == names
	if !p.take(sub, req, again) || again {
		return nil
	}
	defer p.settle(sub)
	p.enter()
	wanted := requested(sub.addressing, req.GetResourceNames(), req.GetResourceLocators())
	// Envoy, xDS protocol, "How the client specifies what resources to return".
	becomes := interestNamed
	if hasWildcard(sub.typeURL) && sub.addressing == byNames && len(wanted) == 0 && sub.interest != interestNamed {
		becomes = interestLegacyWildcard
		wanted[wildcardTopic] = locator{name: wildcardName}
	}
	err = p.resubscribe(sub, wanted, func() subscriptionChange { return sub.sotwChange(wanted, becomes) })
	if err != nil {
		return err
	}
	sub.listed = names
	return nil
}

// take records the request's ACK or NACK. It returns false if the request answers an older
// response, and is to be ignored: the client will send another one, with its names at that time,
// for the response that is on its way. Otherwise no response is made until it is carried out, unless it lists
// the same names again.
func (p *sotw) take(sub *subscription, req *discoverypb.DiscoveryRequest, again bool) bool {
	p.mu.Lock()
	d := &sub.delivery
	if sub.interest == interestUnknown && req.GetVersionInfo() != "" {
		sub.resumes = clientkind.Of(p.node.GetUserAgentName(), p.node.GetClientFeatures()) != clientkind.Dynxds &&
			!slices.Contains(p.node.GetClientFeatures(), clientkind.RelayFeature)
	}
	// An empty nonce is not stale: the client may have sent the request before any response reached it.
	stale := req.GetResponseNonce() != "" && d.reply != ReplyNone && req.GetResponseNonce() != d.nonce
	var got Reply
	var changed time.Time
	d.silentSince = time.Now() // the request may answer an older response
	if !stale {
		got, changed = d.answered(req.GetResponseNonce(), req.GetErrorDetail(), req.GetVersionInfo() == d.version)
		if !again {
			sub.settling.Add(1)
		}
	}
	p.mu.Unlock()
	p.report(sub, got, changed, req.GetErrorDetail())
	return !stale
}

// number implements protocolHandler. It records the response as sent: responses are made and
// get their nonces, and a request is compared with the last nonce, without the other in between. So no response is sent between a request
// that answers the last one and what it changes:
//
//	client answers response 1, with b in place of a   server finds that it answers the last response
//	                                                  sends response 2, with a, for a change of the store
//	client takes the request for ignored              subscribes the client to b, and sends response 3, without a
func (p *sotw) number(b *batch) {
	b.version, b.nonce = formatVersion(b.sub.table.version), p.nonces.next()
	b.sub.delivery.sent(b.version, b.nonce, true)
}

// response implements protocolHandler: it moves all of b.
func (p *sotw) response(b *batch) *discoverypb.DiscoveryResponse {
	wrap := b.sub.wraps
	resources := make([]*anypb.Any, 0, len(b.complete)+len(b.resources))
	add := func(r *Resource) {
		packed := r.packed
		if wrap {
			packed = r.wrapped[b.sub.addressing]()
		}
		resources = append(resources, packed)
	}
	for _, r := range b.complete {
		add(r)
	}
	for _, n := range b.resources {
		add(n.resource)
	}
	resp := &discoverypb.DiscoveryResponse{
		VersionInfo:    b.version,
		Resources:      resources,
		TypeUrl:        b.sub.typeURL,
		Nonce:          b.nonce,
		ResourceErrors: p.errorMessages(b),
	}
	*b = batch{}
	return resp
}

func (p *sotw) errorMessages(b *batch) []*discoverypb.ResourceError {
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
