package controlplane

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/dynxds/dynxds/internal/typeurl"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

func benchSotW(store *Store) *sotw {
	p := newTestSotW(store)
	p.opts.WrapResources, p.reportsAbsence = false, false
	return p
}

// One assignment of 10,000 changes; 100 streams subscribe to all of them. The
// cost is that of notifying 100 streams of one name, and of their responses.
func BenchmarkStore_UpdateOneOf10000(b *testing.B) {
	const resources, streams = 10_000, 100
	store := NewStore()
	names := make([]string, resources)
	update(b, store, func(tx *Tx) {
		for i := range names {
			names[i] = fmt.Sprintf("cluster-%d", i)
			tx.Set(&endpointpb.ClusterLoadAssignment{ClusterName: names[i]})
		}
	})
	var clients []*sotw
	for range streams {
		p := benchSotW(store)
		mustHandle(b, p, request(typeurl.Endpoints, names...))
		clients = append(clients, p)
	}
	change := func(i int) {
		update(b, store, func(tx *Tx) {
			tx.Set(&endpointpb.ClusterLoadAssignment{
				ClusterName: names[i%resources],
				Policy:      &endpointpb.ClusterLoadAssignment_Policy{WeightedPriorityHealth: i%2 == 0},
				Endpoints:   []*endpointpb.LocalityLbEndpoints{{Priority: uint32(i)}},
			})
		})
	}
	sent := 0
	count := func(resp *discoverypb.DiscoveryResponse) error {
		sent += len(resp.GetResources())
		return nil
	}

	b.Run("update", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			change(i)
		}
	})
	b.Run("update and responses", func(b *testing.B) {
		for _, p := range clients {
			for len(p.dueSubs) > 0 {
				p.collect()
			}
		}
		sent = 0
		b.ReportAllocs()
		n := 0
		for ; b.Loop(); n++ {
			change(n + 1<<20)
			for _, p := range clients {
				if err := push(p.stream, p, count); err != nil {
					b.Fatal(err)
				}
			}
		}
		if sent != n*streams {
			b.Fatalf("%d resources were sent in %d updates to %d streams", sent, n, streams)
		}
	})
}

// The memory of a stream that subscribes to 1,000 of 10,000 resources, without gRPC.
func BenchmarkServer_MemoryOfAStream(b *testing.B) {
	const resources, names, streams = 10_000, 1000, 1000
	store := NewStore()
	update(b, store, func(tx *Tx) {
		for i := range resources {
			tx.Set(&endpointpb.ClusterLoadAssignment{ClusterName: fmt.Sprintf("cluster-%d", i)})
		}
	})
	chosen := func(i int) []string {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		list := make([]string, names)
		for j, k := range r.Perm(resources)[:names] {
			list[j] = fmt.Sprintf("cluster-%d", k)
		}
		return list
	}
	quotas := newQuotas(2*streams, nil)
	measure := func(b *testing.B, open func(i int) *stream) {
		for b.Loop() {
			before := heapInUse()
			all := make([]*stream, streams)
			for i := range all {
				all[i] = open(i)
			}
			b.ReportMetric(float64(heapInUse()-before)/streams, "B/stream")
			for _, s := range all {
				s.store.release(s)
				s.usage.close()
			}
		}
	}
	b.Run("SotW", func(b *testing.B) {
		measure(b, func(i int) *stream {
			p := &sotw{stream: newStream(b.Context(), 1, ProtocolSotW, store, &Options{}, usageOf(quotas))}
			mustHandle(b, p, request(typeurl.Endpoints, chosen(i)...))
			discard(b, p)
			return p.stream
		})
	})
	b.Run("delta", func(b *testing.B) {
		measure(b, func(i int) *stream {
			p := &delta{newStream(b.Context(), 1, ProtocolDelta, store, &Options{MaxResponseSize: defaultMaxResponseSize}, usageOf(quotas))}
			handleDelta(b, p, &discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Endpoints, ResourceNamesSubscribe: chosen(i)})
			pushed(b, p)
			return p.stream
		})
	})
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
