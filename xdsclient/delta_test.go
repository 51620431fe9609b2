package xdsclient

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/xdsclient/internal/ads"
)

// A watch that ends while its request is being written is unsubscribed from.
func TestDeltaWatchStoppedWhileItsRequestIsWritten(t *testing.T) {
	t.Parallel()
	types := newTestTypes()
	k := newDeltaCore(t)
	k.c.Watch(types.clusters, "a", &counter{})
	k.answer()
	stop := k.c.Watch(types.clusters, "b", &counter{})
	r, _ := k.channel.NextRequest()
	if !slices.Equal(r.Subscribe.Names, []string{"b"}) {
		t.Fatalf("got request %+v, want a subscription to b", r)
	}
	stop()
	k.channel.Sent()
	r, _ = k.channel.NextRequest()
	if r == nil || !slices.Equal(r.Unsubscribe.Names, []string{"b"}) {
		t.Fatalf("got request %+v, want an unsubscription from b", r)
	}
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	if _, overdue := k.channel.expiry.nextOverdue(); overdue || k.channel.types[0].subs["b"] != nil {
		t.Error("something of the subscription is left")
	}
}

// A server that reads no answers is cut off before they fill the memory.
func TestDeltaBacklogIsBounded(t *testing.T) {
	t.Parallel()
	types := newTestTypes()
	k := newDeltaCore(t)
	k.c.Watch(types.clusters, "a", &counter{})
	k.answer()
	const replies = 64 // fill the backlog
	nonce := strings.Repeat("n", ads.MaxBacklog/replies-64)
	for i := range 2 * replies {
		_, d, err := k.channel.Receive(k.delta(types.clusters, nonce, lacks(fmt.Sprint("x", i))))
		switch {
		case i < replies && err != nil:
			t.Fatalf("response %d: %v", i, err)
		case i >= replies && (!errors.Is(err, ads.ErrUnread) || d != nil):
			t.Fatalf("response %d: got error %v, want %v", i, err, ads.ErrUnread)
		}
		if d != nil {
			<-d
			k.channel.Delivered()
			k.channel.Reading()
		}
	}
}
