package controlplane

import (
	"reflect"

	"github.com/dynxds/dynxds/internal/explore"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// newCheckEncoder returns the encoder of trials. What it leaves out of a stream and a store are caches, statistics,
// locks, and times.
func newCheckEncoder() *explore.Encoder {
	return &explore.Encoder{
		Counters: map[string]string{
			"sentResponse.nonce": "nonce", "sentResponse.version": "version", "delivery.ackedVersion": "version",
			"Store.version": "version", "table.version": "version", "nonces.last": "nonce",
		},
		Skipped: skippedFields(
			"Time", "origin", "lastOverview", "NACK", "pace", "streamUsage", "peerUsage", "replies",
			"Mutex", "RWMutex", "lists", "Timer", "nonces.prefix",
			"stream.opts", "stream.ctx", "stream.failing", "stream.yields", "stream.request", "stream.waits", "stream.grant", "stream.node", "stream.implicit", "stream.retention.timer",
			"subscription.namesVersion", "subscription.inOrder", "subscription.byName", "subscription.listed",
			"retention.timer", "retention.bytes", "retained.due",
			"delivery.sentAt", "delivery.nack", "delivery.sending", "sentResponse.changed", "items.changed",
			"Store.updating", "Store.ambiguous", "Store.pace", "ask.lists", "shrinkingMap.most", "sourceOf.notify", "Demand.Node",
		),
		Texts: map[reflect.Type]func(*explore.Encoder, reflect.Value){
			reflect.TypeFor[dynparam.Constraints](): keyOfDynamic,
			reflect.TypeFor[dynparam.Parameters]():  keyOfDynamic,
			reflect.TypeFor[*Resource]():            resourceText,
			reflect.TypeFor[*resourceError]():       resourceText,
			reflect.TypeFor[*refusal]():             func(e *explore.Encoder, v reflect.Value) { e.Text(v.Elem().FieldByName("wire").String()) },
		},
	}
}

func skippedFields(names ...string) map[string]bool {
	skipped := make(map[string]bool)
	for _, name := range names {
		skipped[name] = true
	}
	return skipped
}

func resourceText(e *explore.Encoder, v reflect.Value) {
	e.Text(v.Elem().FieldByName("name").String())
	e.Text(v.Elem().FieldByName("version").String())
}

// keyOfDynamic writes what Key returns of constraints or parameters.
func keyOfDynamic(e *explore.Encoder, v reflect.Value) {
	const wire = 1 // the field after the list
	if p := v.Field(0); !p.IsNil() {
		e.Text(p.Elem().Field(wire).String())
		return
	}
	e.Text("")
}

// Encode implements explore.Trial.
func (x *trial) Encode(e *explore.Encoder) {
	u := &x.used
	for _, n := range []int{u.user, u.world, u.breaks, u.nacks, u.late, u.moves, x.node} {
		e.Number(uint64(n))
	}
	for i := range x.way.things {
		e.Byte(x.world[i])
		if x.way.keeps {
			e.Byte(x.latest[i])
		}
	}
	if x.way.keeps {
		e.Value(x.kept)
	}
	e.Number(uint64(x.wanted))
	e.Number(uint64(x.subscribed))
	e.Bool(x.dirty)
	c := &x.client
	for l := range x.way.subs_ {
		e.Byte(byte(c.has[l]))
		for i := range x.way.things {
			e.Byte(byte(c.members[l][i]))
		}
	}
	e.Number(uint64(c.refused))
	e.Number(uint64(c.wanted))
	e.Bool(c.begun)
	e.Bool(c.named)
	e.Bool(c.rejected)
	e.Number(uint64(c.nacked - c.rejections))
	e.Counter("nonce", explore.NumberIn(c.nonce))
	e.Counter("version", explore.NumberIn(c.version))
	e.Number(uint64(len(x.up)))
	for _, r := range x.up {
		e.Number(uint64(r.subs))
		e.Number(uint64(r.leaves))
		if r.sotw != nil {
			e.Counter("nonce", explore.NumberIn(r.sotw.ResponseNonce))
			e.Counter("version", explore.NumberIn(r.sotw.VersionInfo))
			e.Bool(r.sotw.ErrorDetail != nil)
			e.Number(uint64(len(r.sotw.ResourceNames)))
			continue
		}
		e.Counter("nonce", explore.NumberIn(r.delta.ResponseNonce))
		e.Bool(r.delta.ErrorDetail != nil)
		e.Value(r.delta.InitialResourceVersions)
		e.Number(uint64(len(r.delta.ResourceNamesSubscribe)))
	}
	e.Number(uint64(len(x.down)))
	for _, r := range x.down {
		e.Counter("nonce", explore.NumberIn(r.nonce))
		e.Counter("version", explore.NumberIn(r.version))
		e.Text(r.text)
	}
	e.Counter("nonce", explore.NumberIn(x.lastNonce))
	e.Bool(x.streaming)
	e.Number(uint64(len(x.live)))
	for _, d := range x.live {
		e.Text(d.Name)
		e.Text(d.Constraints.Key())
		e.Bool(d.answered)
	}
	e.Value([]*entry{absence, awaited, nothing}) // which are equal, but for their addresses
	if x.streaming {
		e.Reflect(reflect.ValueOf(x.st))
		e.Bool(len(x.st.wake) > 0)
		e.Bool(x.st.failed() != nil)
	} else {
		e.Reflect(reflect.ValueOf(x.store))
	}
}
