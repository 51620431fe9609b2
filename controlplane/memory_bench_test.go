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

// The memory of a stream that subscribes to 1,000 of 10,000 resources, without gRPC.
func BenchmarkServer_MemoryOfAStream(b *testing.B) {
	const resources, names, streams = 10_000, 1000, 1000
	store := NewStore()
	if _, err := store.Update(func(tx *Tx) {
		for i := range resources {
			tx.Set(&endpointpb.ClusterLoadAssignment{ClusterName: fmt.Sprintf("cluster-%d", i)})
		}
	}); err != nil {
		b.Fatal(err)
	}
	chosen := func(i int) []string {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		list := make([]string, names)
		for j, k := range r.Perm(resources)[:names] {
			list[j] = fmt.Sprintf("cluster-%d", k)
		}
		return list
	}
	l := limits{names: 2 * resources, bytes: 1 << 30}
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
			}
		}
	}
	b.Run("SotW", func(b *testing.B) {
		measure(b, func(i int) *stream {
			p := newSotW(newStream(uint64(i), ProtocolSotW, store, nil, l, nil), false, false)
			mustHandle(b, p, request(typeurl.Endpoints, chosen(i)...))
			if err := p.push(func(*discoverypb.DiscoveryResponse) error { return nil }); err != nil {
				b.Fatal(err)
			}
			return p.stream
		})
	})
	b.Run("delta", func(b *testing.B) {
		measure(b, func(i int) *stream {
			p := newDelta(newStream(uint64(i), ProtocolDelta, store, nil, l, nil), defaultMaxResponseSize)
			if err := p.handleRequest(&discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Endpoints, ResourceNamesSubscribe: chosen(i)}); err != nil {
				b.Fatal(err)
			}
			if err := p.push(func(*discoverypb.DeltaDiscoveryResponse) error { return nil }); err != nil {
				b.Fatal(err)
			}
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
