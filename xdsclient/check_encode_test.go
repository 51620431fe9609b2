package xdsclient

import (
	"reflect"
	"time"

	"github.com/dynxds/dynxds/internal/explore"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// newCheckEncoder returns the encoder of trials.
func newCheckEncoder() *explore.Encoder {
	present := func(e *explore.Encoder, v reflect.Value) { e.Byte(1) }
	dynamic := func(e *explore.Encoder, v reflect.Value) { e.Text(keyOfDynamic(v)) }
	return &explore.Encoder{
		// "response" numbers the responses of a channel, "of type" those of a type on a stream.
		Counters: map[string]string{
			"subscription.seen": "response", "requested.ignoredDenialIn": "response",
			"managementServer.responses": "response",
			"offer.response":             "response", "offer.retracted": "response", "offer.denied": "response",
			"requests.responses": "of type", "requested.older": "of type",
			"requested.request": "request", "requested.before": "request", "crossings.number": "request", "crossings.first": "request", "crossings.read": "request",
			"unsubscription.request": "request", "unsubscription.responses": "of type", "requested.listed": "of type",
			"Replies.Nonce": "nonce", "Reply.Nonce": "nonce",
			"subscription.deadline": "deadline",
		},
		// The client compares these with maxCrossings.
		Distances: map[string]uint64{"of type": 8},
		// Caches of what can be found otherwise, statistics, times, and what is of no use in a check.
		Skipped: map[string]bool{
			"XDSClient": true, "managementServer.client": true, "managementServer.server": true, "managementServer.share": true,
			"managementServer.ctx": true, "managementServer.cancel": true, "managementServer.nextAttempt": true, "managementServer.finds": true, "managementServer.ignored": true,
			"managementServer.authorities": true, "managementServer.target": true, "managementServer.saidSoon": true, "typeState.channel": true,
			"typeState.typ": true, "typeState.last": true, "typeState.limit": true,
			"Replies.sent": true, "Replies.backlog": true,
			"subscription.types": true, "subscription.found": true, "subscriptions.variants": true, "subscriptions.size": true, "resource.authority": true, "authority.client": true, "authority.servers": true, "authority.channels": true,
			"authority.wait": true, "payload.value": true, "payload.server": true,
			"stamp.at": true, "Error.Server": true, "Error.NodeID": true, "Error.stamp": true, "Error.TypeName": true,
			"Error.status": true, "watch.watcher": true, "watch.called": true,
			"watch.client": true, "queued.watch": true, "queued.member": true, "expiry.fire": true,
			"expiry.before": true, "expiry.started": true, "expiry.next": true, "expiry.timeout": true, "Link.opened": true, "Link.shown": true,
		},
		Texts: map[reflect.Type]func(*explore.Encoder, reflect.Value){
			reflect.TypeFor[time.Time]():            func(e *explore.Encoder, v reflect.Value) { e.Bool(!v.IsZero()) },
			reflect.TypeFor[dynparam.Constraints](): dynamic, // their serialized form is their first text
			reflect.TypeFor[dynparam.Parameters]():  dynamic,
			reflect.TypeFor[*bootstrap.Server]():    present,
			reflect.TypeFor[*time.Timer]():          present,
			reflect.TypeFor[*ResourceType](): func(e *explore.Encoder, v reflect.Value) { // two types may have resources of one name
				e.Text(v.Elem().FieldByName("TypeURL").String())
			},
			reflect.TypeFor[error](): func(e *explore.Encoder, v reflect.Value) { e.Text(v.Elem().Type().String()) },
		},
	}
}

// Encode implements explore.Trial.
func (x *trial) Encode(e *explore.Encoder) {
	x.encodeModel(e)
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	for _, side := range x.sides {
		for _, ts := range side.ch.types { // the subscriptions first, in an order that does not depend on maps
			e.Reflect(reflect.ValueOf(ts.subs))
			e.Reflect(reflect.ValueOf(ts))
		}
		e.Reflect(reflect.ValueOf(side.ch))
	}
	for _, a := range x.c.authorities {
		e.Byte(byte(len(a.channels)))
	}
	e.Reflect(reflect.ValueOf(x.c.authorities))
}

// encodeModel encodes the server, what is under way, and what the watches have.
func (x *trial) encodeModel(e *explore.Encoder) {
	for _, n := range []int{x.used.user, x.used.world, x.used.breaks, x.used.extra, x.used.timers, x.used.moves, x.used.lapses, x.selected} {
		e.Byte(byte(n))
	}
	for l, w := range x.watches {
		e.Text(string(x.said[l]))
		if w == nil {
			e.Byte(255)
			continue
		}
		e.Byte(byte(w.value))
		e.Bool(w.failed)
		e.Bool(w.lost)
		for _, v := range w.members {
			e.Byte(byte(v))
		}
	}
	for side := range x.sides {
		x.at(side).encodeSide(e)
	}
}

// encodeSide encodes a server, and what is under way.
func (x *trial) encodeSide(e *explore.Encoder) {
	s := &x.server
	for _, c := range x.world {
		e.Byte(byte(c))
	}
	e.Byte(byte(x.sentSelected))
	e.Byte(byte(s.subs))
	e.Byte(byte(s.whole))
	e.Bool(x.hasDenied())
	for kind := range checkKinds {
		e.Bool(s.begun[kind])
		e.Counter("nonce", uint64(s.nonce[kind]))
		e.Text(s.version[kind])
		if e.Bool(s.behind[kind]); s.behind[kind] {
			e.Counter("nonce", uint64(s.since[kind]))
		}
		e.Text(x.memory[kind].version)
	}
	for l := range x.way.locators_ {
		e.Byte(byte(s.told[l]))
		e.Byte(byte(x.memory[x.way.locators_[l].kind].told[l]))
		for i := range x.way.things {
			e.Byte(byte(s.members[l][i]))
		}
	}
	e.Byte(byte(len(x.up)))
	for _, r := range x.up {
		e.Counter("nonce", uint64(r.nonce))
		e.Byte(byte(r.kind))
		e.Byte(byte(r.subs))
		e.Byte(byte(r.leaves))
		e.Bool(r.nack)
		e.Text(r.version)
		for _, v := range r.claims {
			e.Byte(byte(v))
		}
		e.Byte(0)
	}
	e.Byte(byte(len(x.down)))
	for _, r := range x.down {
		r.encode(e)
	}
	if x.way.scope.timers > 0 && x.lastRead != nil {
		e.Byte(byte(x.lastRead.there))
	}
}

func (r *checkResponse) encode(e *explore.Encoder) {
	e.Counter("nonce", uint64(r.nonce))
	e.Byte(byte(r.kind))
	e.Text(r.version)
	e.Text(r.words)
	e.Byte(byte(r.selects))
	e.Byte(byte(r.there))
	e.Byte(byte(r.denied))
	for _, m := range r.members {
		e.Byte(byte(m))
	}
}

// keyOfDynamic returns what Key returns of constraints or parameters.
func keyOfDynamic(v reflect.Value) string {
	const wire = 1 // the field after the list
	if p := v.Field(0); !p.IsNil() {
		return p.Elem().Field(wire).String()
	}
	return ""
}
