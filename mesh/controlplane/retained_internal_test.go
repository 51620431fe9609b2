package controlplane

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/dynxds/dynxds/internal/typeurl"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// However many resources are deleted, a bounded number is kept: the oldest are removed.
func TestRetention_AreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := NewStore()
		p := newTestSotW(store)
		p.opts.RemovalDelay = time.Minute
		mustHandle(t, p, request(typeurl.Cluster))
		const batch = 4000
		for round := range 5 {
			update(t, store, func(tx *Tx) {
				for i := range batch {
					tx.Set(&clusterpb.Cluster{Name: fmt.Sprint(round, ".", i)})
				}
			})
			discard(t, p)
			update(t, store, func(tx *Tx) { tx.DeleteAll(typeurl.Cluster) })
			discard(t, p)
		}
		sub := p.subs[typeurl.Cluster]
		if len(sub.items.kept.m) != maxRetained || len(p.retention.queue) != maxRetained || len(sub.last) != maxRetained {
			t.Errorf("%d are kept, %d are in the queue, %d were sent, want %d each", len(sub.items.kept.m), len(p.retention.queue), len(sub.last), maxRetained)
		}
		time.Sleep(time.Minute)
		p.endRetention()
		discard(t, p)
		if len(sub.items.kept.m) > 0 || len(p.retention.queue) > 0 || p.retention.bytes != 0 || len(sub.last) > 0 {
			t.Errorf("after the delay %d are kept, %d of %d bytes are in the queue, %d are sent", len(sub.items.kept.m), len(p.retention.queue), p.retention.bytes, len(sub.last))
		}
		store.release(p.stream)
	})
}

func TestRetention_AreBoundedInBytes(t *testing.T) {
	t.Parallel()
	store := NewStore()
	p := newTestDelta(store)
	p.opts.RemovalDelay = time.Hour
	handleDelta(t, p, &discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Cluster})
	large := make([]byte, 1<<20)
	for i := range 100 {
		name := fmt.Sprint(i)
		update(t, store, func(tx *Tx) { tx.Set(&clusterpb.Cluster{Name: name, AltStatName: string(large)}) })
		pushed(t, p)
		update(t, store, func(tx *Tx) { tx.Delete(typeurl.Cluster, name) })
		pushed(t, p)
		if p.retention.bytes > maxRetainedBytes {
			t.Fatalf("%d bytes are kept", p.retention.bytes)
		}
	}
	if kept := len(p.subs[typeurl.Cluster].items.kept.m); kept < 20 || kept > 32 {
		t.Errorf("%d resources of 1 MiB are kept, want somewhat less than 32", kept)
	}
	store.release(p.stream)
}
