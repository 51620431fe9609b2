package controlplane

import (
	"bytes"
	"context"
	"runtime/debug"
	"testing"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/dynxds/dynxds/internal/typeurl"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// A delta ACK changes no subscription, so it does not wait for an update of the store that is in
// progress.
func TestDelta_ACKNeedsNoStore(t *testing.T) {
	t.Parallel()
	store := NewStore()
	p := newTestDelta(store)
	update(t, store, func(tx *Tx) { tx.Set(&clusterpb.Cluster{Name: "a"}) })
	handleDelta(t, p, &discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Cluster, ResourceNamesSubscribe: []string{"a"}})
	sent := pushed(t, p)
	if len(sent) != 1 {
		t.Fatalf("%d responses were sent", len(sent))
	}
	store.mu.Lock()
	defer store.mu.Unlock()
	handleDelta(t, p, &discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Cluster, ResponseNonce: sent[0].GetNonce()})
	if reply := p.subs[typeurl.Cluster].delivery.reply; reply != ReplyACK {
		t.Errorf("the reply is %v", reply)
	}
}

// What is deep runs on another stack than that of a stream's reader, which keeps its size.
func TestStream_HooksRunOnAnotherStack(t *testing.T) {
	t.Parallel()
	p := newTestDelta(NewStore())
	var calls []string
	note := func(name string) {
		calls = append(calls, name)
		if bytes.Contains(debug.Stack(), []byte("handleRequest(")) {
			t.Errorf("%s runs on the stack of the reader", name)
		}
	}
	p.opts.StoreFor = func(context.Context, *corepb.Node) (*Store, error) { note("StoreFor"); return nil, nil }
	p.opts.Authorize = func(context.Context, *corepb.Node, string, string) error { note("Authorize"); return nil }
	handleDelta(t, p, &discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Cluster, ResourceNamesSubscribe: []string{"a"}})
	if len(calls) != 2 {
		t.Errorf("the hooks were called: %q", calls)
	}
}
