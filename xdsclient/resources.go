package xdsclient

import (
	"fmt"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// item is a resource of a response on its way into the cache.
type item struct {
	wire.Resource
	// enveloped says that the resource is kept in its envelope: the type has Renew.
	enveloped bool
	// parameters are in the wrapper. unreadable says that they cannot be read.
	parameters dynparam.Parameters
	unreadable bool
	// examined says that the resource was decoded, or has an error without that; payload is the decoder's.
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

// applyResources is the second pass over a response: each resource is delivered to its recipients.
func (u *update) applyResources() {
	for r := range u.resp.Resources {
		u.batch = append(u.batch, item{Resource: u.named(r), enveloped: u.types.typ.Renew != nil && r.Wrapper != nil})
		if len(u.batch) == batchSize && !u.applyBatch() {
			return
		}
	}
	u.applyBatch()
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
func (u *update) applyBatch() bool {
	u.total += len(u.batch)
	unknown := u.deliverAll(u.batch)
	for i := range unknown {
		u.decoded += u.decoder.decode(&unknown[i])
		if u.ch.client.ctx.Err() != nil {
			return false
		}
	}
	u.deliverAll(unknown)
	clear(u.batch)
	u.batch = u.batch[:0]
	return true
}

// deliverAll delivers items, and returns the items that have to be examined first, in the same
// memory.
func (u *update) deliverAll(items []item) (unknown []item) {
	u.ch.client.mu.Lock()
	defer u.ch.client.unlock()
	unknown = items[:0]
	for i := range items {
		it := &items[i]
		if !it.examined {
			u.readParameters(it)
		}
		if !u.deliver(it) {
			unknown = append(unknown, *it)
		}
	}
	return unknown
}

// readParameters reads the dynamic parameters, if the server is asked for variants.
func (u *update) readParameters(it *item) {
	if !u.types.Dialect.Locators {
		return
	}
	var err error
	if it.parameters, err = u.parameters.of(&it.Resource, u.types); err != nil {
		it.unreadable, it.Err = true, err
	}
}

// deliver hands a resource to all that it is for. It reports false, and has the resource only enter its collections, if the
// resource has to be examined first.
func (u *update) deliver(it *item) bool {
	switch {
	case len(it.Name) == 0 && !it.examined:
		return false
	case len(it.Name) == 0:
		u.nameless++
		u.blame(it, fmt.Sprintf("resources[%d]", it.Index), it.Err)
		return true
	}
	u.findRecipients(it)
	switch {
	case len(u.found) == 0 && !u.collects:
		return u.drop(it)
	case it.examined:
		u.deliverTo(it, it.payload)
	case it.Heartbeat:
		u.heartbeat(it)
	case it.Err != nil: // is reported in its turn, so that faults are listed in order
		return false
	default:
		known := u.knownVersion(it)
		if known == nil {
			return false
		}
		u.unchanged++
		u.deliverTo(it, known)
	}
	return true
}

// deliverTo hands a resource to its recipients: p, or the resource's error.
func (u *update) deliverTo(it *item, p *payload) {
	for _, s := range u.found {
		switch {
		case it.Err == nil:
			u.accept(s, it, p)
		case u.once(s, it):
			u.received(s, it)
			u.reject(s, it, it.Err)
		}
	}
}

// drop counts a resource that is for no subscription. It reports false, and does nothing, if the resource has to be examined first.
func (u *update) drop(it *item) bool {
	switch {
	case it.unreadable && it.examined:
		u.nameless++
		u.blame(it, u.where(it), it.Err)
	case it.unreadable && u.asked(it.Name):
		return false
	case u.outranked:
		u.passed++
	default:
		if u.unasked++; u.types.Dialect.Locators && u.asked(it.Name) {
			u.unmatched++
		}
	}
	return true
}
