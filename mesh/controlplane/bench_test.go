package controlplane

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/typeurl"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

func benchSotW(store *Store) *sotw {
	p := newTestSotW(store)
	p.opts.WrapResources, p.reportsAbsence = false, false
	return p
}

func benchDelta(store *Store, maxSize int) *delta {
	return &delta{newTestStream(store, ProtocolDelta, Options{MaxResponseSize: maxSize})}
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
				if err := p.push(count); err != nil {
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

// benchClients makes delta streams that subscribed to the name with constraints.
func benchClients(b *testing.B, store *Store, streams int, locator func(i int) *discoverypb.ResourceLocator) []*delta {
	b.Helper()
	var clients []*delta
	for i := range streams {
		p := benchDelta(store, defaultMaxResponseSize)
		handleDelta(b, p, &discoverypb.DeltaDiscoveryRequest{
			TypeUrl: typeurl.Endpoints, ResourceLocatorsSubscribe: []*discoverypb.ResourceLocator{locator(i)},
		})
		pushed(b, p)
		clients = append(clients, p)
	}
	return clients
}

func benchVariant(tx *Tx, name, key, value string, n int) {
	tx.SetNamed(name, map[string]string{key: value}, &anypb.Any{TypeUrl: typeurl.Endpoints, Value: fmt.Append(nil, "endpoints ", n)})
}

// One variant of two changes, and 1,000 streams with equal constraints have it:
// one choice, 1,000 responses of one encoded resource. A variant that no stream
// has costs one comparison for all of them together.
func BenchmarkStore_OneVariantTo1000Streams(b *testing.B) {
	const streams = 1_000
	store := NewStore()
	update(b, store, func(tx *Tx) {
		benchVariant(tx, "e", "env", "prod", 0)
		benchVariant(tx, "e", "env", "test", 0)
	})
	clients := benchClients(b, store, streams, func(int) *discoverypb.ResourceLocator { return fuzzLocator("e", "env", "prod") })
	n := 0
	change := func(b *testing.B, env string) {
		n++
		update(b, store, func(tx *Tx) { benchVariant(tx, "e", "env", env, n) })
	}
	b.Run("a variant that they have", func(b *testing.B) {
		b.ReportAllocs()
		sent := 0
		for b.Loop() {
			change(b, "prod")
			sent = 0
			for _, p := range clients {
				if err := p.push(func(resp *discoverypb.DeltaDiscoveryResponse) error {
					sent += len(resp.GetResources())
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			}
		}
		if sent != streams {
			b.Fatalf("%d resources were sent to %d streams", sent, streams)
		}
	})
	b.Run("another variant", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			change(b, "test")
		}
		for _, p := range clients {
			if len(p.dueSubs) > 0 {
				b.Fatal("a stream is due that has another variant")
			}
		}
	})
}
