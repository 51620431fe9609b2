package xdsclient

import (
	"slices"
	"testing"
)

// A watch that ends while its request is being written is unsubscribed from.
func TestDeltaWatchStoppedWhileItsRequestIsWritten(t *testing.T) {
	t.Parallel()
	types := newTestTypes()
	k := newCore(t, "delta")
	k.c.Watch(types.clusters, "a", &counter{})
	k.answer()
	stop := k.c.Watch(types.clusters, "b", &counter{})
	r, fresh, _ := k.channel.nextRequest()
	if !slices.Equal(r.Subscribe.Names, []string{"b"}) {
		t.Fatalf("got request %+v, want a subscription to b", r)
	}
	stop()
	k.channel.sent(fresh)
	r, _, _ = k.channel.nextRequest()
	if r == nil || !slices.Equal(r.Unsubscribe.Names, []string{"b"}) {
		t.Fatalf("got request %+v, want an unsubscription from b", r)
	}
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	if k.channel.types[0].subs.first["b"] != nil {
		t.Error("something of the subscription is left")
	}
}
