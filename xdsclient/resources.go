package xdsclient

import (
	"fmt"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// resources is the second pass over a response: each resource is delivered to its recipients.
type resources struct {
	*update
	batch      []item
	recipients recipients
	decoder    resourceDecoder
}

// item is a resource of a response on its way into the cache.
type item struct {
	wire.Resource
	// enveloped says that the resource is kept in its envelope: the type has Renew.
	enveloped bool
	// parameters are in the wrapper. unreadable says that they cannot be read.
	parameters dynparam.Parameters
	unreadable bool
	// examined says that the resource was decoded, or has a fault without that; payload is the decoder's.
	examined bool
	payload  *payload
	// invalid says that the resource was counted among the invalid ones.
	invalid bool
}

// bytes returns the bytes that are kept of the resource, and by which it is recognized.
func (it *item) bytes() []byte {
	if it.enveloped {
		return it.Wrapper
	}
	return it.Value
}

// renews says that the resource extends a TTL, of which watchers are told even if its bytes are known.
func (it *item) renews() bool { return it.enveloped && it.TTL > 0 }

// envelope is DecodeOptions.Envelope.
func (it *item) envelope() Envelope {
	if !it.enveloped {
		return Envelope{}
	}
	e := Envelope{Name: string(it.Name), Version: string(it.Version), Parameters: it.parameters, TTL: it.TTL, DoNotCache: it.DoNotCache}
	if it.HasAliases() {
		for alias := range it.Aliases() {
			e.Aliases = append(e.Aliases, string(alias))
		}
	}
	return e
}

// applyResources goes through the resources.
func (u *update) applyResources() {
	rs := resources{
		update:     u,
		recipients: recipients{update: u},
		decoder:    resourceDecoder{ch: u.ch, types: u.types, size: u.size},
	}
	for r := range u.resp.Resources {
		rs.batch = append(rs.batch, item{Resource: u.named(r), enveloped: u.types.typ.Renew != nil && r.Wrapper != nil})
		if len(rs.batch) == batchSize && !rs.applyBatch() {
			return
		}
	}
	rs.applyBatch()
}

// named returns a resource with the name in its bytes, if it has no other.
func (u *update) named(r wire.Resource) wire.Resource {
	if len(r.Name) == 0 && r.Err == nil {
		r.Name = u.types.typ.NameOf(r.Value)
	}
	return r
}

// applyBatch delivers the resources that the client knows already, then decodes the others without the lock
// and delivers them. It reports false, and delivers nothing more, if the client has been closed.
func (rs *resources) applyBatch() bool {
	rs.total += len(rs.batch)
	unknown := rs.deliverAll(rs.batch)
	for i := range unknown {
		rs.decoded += rs.decoder.decode(&unknown[i])
		if rs.ch.client.ctx.Err() != nil {
			return false
		}
	}
	rs.deliverAll(unknown)
	clear(rs.batch)
	rs.batch = rs.batch[:0]
	return true
}

// deliverAll delivers items, and returns the items that have to be examined first, in the same
// memory.
func (rs *resources) deliverAll(items []item) (unknown []item) {
	rs.ch.client.mu.Lock()
	defer rs.ch.client.unlock()
	unknown = items[:0]
	for i := range items {
		it := &items[i]
		if !it.examined {
			rs.readParameters(it)
		}
		if !rs.deliver(it) {
			unknown = append(unknown, *it)
		}
	}
	return unknown
}

// readParameters reads the dynamic parameters, if the server is asked for variants.
func (rs *resources) readParameters(it *item) {
	if !rs.types.Dialect.Locators() {
		return
	}
	var err error
	if it.parameters, err = rs.parameters.of(&it.Resource, rs.types); err != nil {
		it.unreadable, it.Err = true, err
	}
}

// deliver hands a resource to all that it is for. It reports false, and does nothing, if the
// resource has to be examined first.
func (rs *resources) deliver(it *item) bool {
	to := &rs.recipients
	switch {
	case len(it.Name) == 0 && !it.examined:
		return false
	case len(it.Name) == 0:
		rs.nameless++
		rs.blame(it, fmt.Sprintf("resources[%d]", it.Index), it.Err)
		return true
	}
	to.find(it)
	switch {
	case to.none():
		return rs.drop(it, to.outranked)
	case it.examined:
		rs.deliverTo(to, it, it.payload)
	case it.Heartbeat:
		rs.heartbeat(to.found, it)
	case it.Err != nil: // is reported in its turn, so that faults are listed in order
		return false
	default:
		known := to.knownVersion(it)
		if known == nil {
			return false
		}
		rs.unchanged++
		rs.deliverTo(to, it, known)
	}
	return true
}

// deliverTo hands a resource to its recipients: p, or the resource's error.
func (rs *resources) deliverTo(to *recipients, it *item, p *payload) {
	to.enterMembers(it)
	for _, s := range to.found {
		switch {
		case it.Err == nil:
			rs.accept(s, it, p)
		case rs.once(s, it):
			rs.received(s, it)
			rs.reject(s, it, it.Err)
		}
	}
}

// drop counts a resource that is for no subscription. outranked says that it matches one that
// takes a better one. It reports false, and does nothing, if the resource has to be examined first.
func (rs *resources) drop(it *item, outranked bool) bool {
	switch {
	case it.unreadable && it.examined:
		rs.nameless++
		rs.blame(it, rs.where(it), it.Err)
	case it.unreadable && rs.asked(it.Name):
		return false
	case outranked:
		rs.passed++
	default:
		if rs.unasked++; rs.types.Dialect.Locators() && rs.asked(it.Name) {
			rs.unmatched++
		}
	}
	return true
}
