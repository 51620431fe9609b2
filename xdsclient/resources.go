package xdsclient

import (
	"cmp"
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
	// last is the value that the client had of the resource from the server, or nil. payload is the decoder's.
	last    any
	payload *payload
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

// applyResources is the second pass over a response: each resource is delivered to its recipients. One whose bytes the client
// does not have is decoded before, without the lock. It returns an error if the client has been closed, and delivers nothing more.
func (u *update) applyResources() error {
	c, it := u.ch.client, new(item)
	for r := range u.resp.Resources {
		*it = item{Resource: r, enveloped: u.types.typ.Renew != nil && r.Wrapper != nil}
		u.total++
		c.mu.Lock()
		known := u.deliverInPlace(it)
		if !known {
			it.Resource = u.named(r)
			u.readParameters(it)
			known = u.deliver(it)
		}
		c.unlock()
		if known {
			continue
		}
		u.decoded++
		u.decoder.decode(it)
		if err := c.ctx.Err(); err != nil {
			return err
		}
		c.mu.Lock()
		u.deliver(it)
		c.unlock()
	}
	return nil
}

// named returns a resource with the name in its bytes, if it has no other.
func (u *update) named(r wire.Resource) wire.Resource {
	if len(r.Name) == 0 && r.Err == nil {
		r.Name = u.types.typ.NameOf(r.Value)
	}
	return r
}

// readParameters reads the dynamic parameters, if the server is asked for variants.
func (u *update) readParameters(it *item) {
	if !u.ch.dialect.Locators {
		return
	}
	var err error
	if it.parameters, err = u.parameters.of(&it.Resource, u.types); err != nil {
		it.unreadable, it.Err = true, err
	}
}

// deliver hands a resource to all that it is for. It reports false, and has the resource only enter its collections, if the
// resource has to be decoded first.
func (u *update) deliver(it *item) bool {
	ready := it.payload != nil || it.Err != nil
	switch {
	case len(it.Name) == 0 && !ready:
		return false
	case len(it.Name) == 0:
		u.nameless++
		u.blame(it, fmt.Sprintf("resources[%d]", it.Index), it.Err)
		return true
	}
	u.findRecipients(it)
	u.notePlace(it)
	switch {
	case len(u.found) == 0 && !u.collects:
		u.drop(it)
	case it.Heartbeat:
		u.heartbeat(it)
	case ready:
		u.deliverTo(it, it.payload)
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

// deliverInPlace hands a bare resource to the subscription whose resource stood at the same place of an earlier response, and reports
// false if the bytes have changed. Servers keep their order, so few names have to be read and looked up.
func (u *update) deliverInPlace(it *item) bool {
	if it.Wrapper != nil || it.Index >= len(u.types.places) {
		return false
	}
	s := u.types.places[it.Index]
	if s == nil || s.canonical != "" || !s.payload.of(it, u.ch.server) {
		return false
	}
	u.unchanged++
	u.accept(s, it, s.payload)
	return true
}

// notePlace notes that a bare resource is for one subscription alone. There are no more places than subscriptions.
func (u *update) notePlace(it *item) {
	ts := u.types
	if it.Wrapper != nil || len(u.found) != 1 || u.collects || u.ch.dialect.Locators || it.Index >= ts.subs.size {
		return
	}
	if ts.places == nil {
		ts.places = make([]*subscription, ts.subs.size)
	}
	ts.places[it.Index] = u.found[0]
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

// drop counts a resource that is for no subscription.
func (u *update) drop(it *item) {
	collection, _ := u.types.collectionsOf(it.Name)
	asked := u.ch.dialect.Locators && cmp.Or(u.types.subs.named(it.Name), collection) != nil
	switch {
	case it.unreadable && asked:
		u.nameless++
		u.blame(it, u.where(it), it.Err)
	case u.outranked:
		u.passed++
	default:
		if u.unasked++; asked {
			u.unmatched++
		}
	}
}
