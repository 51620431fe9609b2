package controlplane

import (
	"fmt"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// renewal is a resource whose TTL begins again.
type renewal struct {
	slotKey
	// parameters is the key of the variant's.
	parameters string
}

// Renew begins the TTL of a resource again, for all clients that have it: it sends a heartbeat, that
// is the resource without its bytes (Envoy, xDS protocol, "TTL"). The resource is the variant with
// these parameters of what is set or answered under the name; one without a TTL is left alone.
//
// SotW clients are sent heartbeats only if their responses are wrapped, as without that they do not
// know of the TTL; for Listeners and Clusters, whose responses are complete, they are sent all again.
func (tx *Tx) Renew(typeURL, name string, parameters map[string]string) {
	p, err := dynparam.NewParameters(parameters)
	if err != nil {
		tx.fail(fmt.Errorf("renew a variant of %q: %w", name, err))
		return
	}
	tx.renewals = append(tx.renewals, renewal{slotKey{typeURL, keyOf(name)}, p.Key()})
}

// renew makes the heartbeats of a resource due.
func (t *table) renew(key nameKey, parameters string) {
	renewed := func(e *entry) bool {
		r := e.asResource()
		return r != nil && r.ttl > 0 && r.parameters.Key() == parameters
	}
	for _, a := range t.asks.m[key] {
		for sub := range a.subscriptions() {
			if renewed(a.entryOf(sub)) {
				sub.renew(sub.topicOf(a))
			}
		}
	}
	stored := t.slots[key].variant(parameters)
	if !renewed(stored) {
		return
	}
	for _, c := range t.collectionAsks(key) {
		for sub := range c.subscriptions() {
			tp := variantTopic(key, stored.parameters())
			if sub.addressing == byNames {
				tp = topic{name: key}
			}
			sub.renew(tp)
		}
	}
}

// renew makes a heartbeat due: over SotW with all others.
func (sub *subscription) renew(tp topic) {
	if !sub.wraps {
		return
	}
	if sub.mode == pushAll {
		tp = wholeList
	}
	sub.items.add(tp, forHeartbeat)
	sub.stream.markDue(sub)
}

// heartbeat is the resource without its bytes.
func (r *Resource) heartbeat() *Resource {
	h := &Resource{name: r.name, parameters: r.parameters, version: r.version, ttl: r.ttl}
	h.wrap()
	return h
}
